"""Suite `fpga-dataflow`: placeholder filled below."""
