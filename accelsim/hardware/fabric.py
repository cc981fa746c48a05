"""How a communication library drives a class of links: its protocols and what a device copies.

Messages go by one of several protocols that trade latency against bandwidth. NCCL has three: `ll`
(each 8 bytes hold 4 of flags), `ll128` (flags in 8 of 128 bytes) and `simple` (long chunks behind
fences); NCCL, src/graph/tuning.cc. A device also moves what it sends and receives through its own
memory, which takes time beside the wire (the gamma of Thakur et al., IJHPCA 19(1), 2005).
"""

from __future__ import annotations

from accelsim.frozen import frozen


@frozen
class Protocol:
    """One way to send.

    Attributes:
        name: Such as "simple"; empty for messages without a protocol.
        start_s: Seconds once per collective.
        hop_s: Seconds added to the latency of each hop.
        bandwidth_fraction: Share of the links' achieved bandwidth.
    """

    name: str = ""
    start_s: float = 0.0
    hop_s: float = 0.0
    bandwidth_fraction: float = 1.0


_ANY = Protocol()


@frozen
class Fabric:
    """A class of links with its library.

    Attributes:
        name: In ``calibration/class/fabrics.yaml``; empty where none is known.
        protocols: To choose from; a plain one where there is none.
        algorithms: That the library has for collectives of several algorithms; all where empty.
        copy_ratio: Payload bytes that a device copies and reduces per second over the bandwidth of
            its links; None where the wire hides it.
        in_switch_fraction: Share of the achieved bandwidth that reductions inside the switch get;
            None where the switch has none.
        is_tree_chained: Whether trees run as chains here.
        log_sigma: Standard deviation of ln(true / predicted time).
    """

    name: str = ""
    protocols: tuple[Protocol, ...] = (_ANY,)
    algorithms: tuple[str, ...] = ()
    copy_ratio: float | None = None
    in_switch_fraction: float | None = None
    is_tree_chained: bool = False
    log_sigma: float = 0.2

    def protocol(self, name: str) -> Protocol:
        """The protocol of a name; a plain one where the fabric does not have it."""
        return next((protocol for protocol in self.protocols if protocol.name == name), _ANY)


#: Links of no known class: one protocol, alpha plus size times beta.
PLAIN = Fabric()
