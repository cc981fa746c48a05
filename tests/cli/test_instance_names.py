"""Cloud instances as devices of commands."""


def test_a_comparison_keeps_two_instances_of_one_board(run):
    names = "p5.48xlarge,Standard_ND96isr_H100_v5"
    rows = run("compare", "resnet-50", "--devices", names, "--format", "json").json
    assert len(rows) == 2
    offers = {row["offer"].rpartition("/")[2] for row in rows}
    assert offers == {"p5.48xlarge", "Standard_ND96isr_H100_v5"}


def test_serving_pays_the_instance_named(run):
    words = ("serve", "llama-3.1-8b", "-d", "p5.48xlarge", "--rate", "1", "--requests", "20")
    assert run(*words, "--format", "json").json["offer"].endswith("/p5.48xlarge")
