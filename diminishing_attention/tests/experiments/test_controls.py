"""The two controls: what they copy by; the ordinary commands refuse their runs."""

import pytest
import torch

pytest.importorskip("shared")

from ... import model as network
from ...diminishing import Diminishing
from ...experiments import controls
from ...loading import load_run
from ...model import PointerGenerator
from ..conftest import SMALL


@pytest.fixture
def steps_of(monkeypatch, make_pointer, batch):
    """steps_of(control, kind): of one set of weights all steps, then context and sum of the first."""

    def run(control: str, kind: str = "dim"):
        model = make_pointer(kind)
        if control:
            with monkeypatch.context() as patch:
                patch.setattr(network, "Decoder", controls.decoder_of(control))
                other = PointerGenerator(19, 6, 5, Diminishing(kind)).eval()
            other.load_state_dict(model.state_dict(), strict=False)
            model = other
        with torch.no_grad():
            log_p, past = model.step(batch.target_in[:, 0], *model.start(batch))
            return model.run(batch), past.context, log_p.exp().sum(-1)

    return run


def test_d23_plain_copying_copies_by_attention_and_reads_by_the_gains(steps_of):
    """D23: all probabilities sum to 1 again; the context is that of the gains."""
    (steps, context, total), (other, other_context, _) = steps_of("plain_copy"), steps_of("")
    assert torch.equal(steps.copying, steps.attention) and torch.equal(context, other_context)
    assert torch.allclose(steps.attention[:, 0], other.attention[:, 0])
    assert (other.copying < other.attention)[other.copying > 0].all()
    assert torch.allclose(total, torch.ones(4), atol=1e-5)


@pytest.mark.parametrize("kind", ["dim", "dydim"])
def test_renormalised_gains_sum_to_1(steps_of, kind):
    steps, context, total = steps_of("renormalised", kind)
    assert torch.allclose(steps.copying.sum(-1), torch.ones(4, 1), atol=1e-5)
    assert torch.allclose(total, torch.ones(4))
    plain, other_context, _ = steps_of("", kind)
    first = plain.copying[:, 0] / plain.copying[:, 0].sum(-1, keepdim=True)
    assert torch.allclose(steps.copying[:, 0], first, atol=1e-6)
    assert not torch.allclose(context, other_context)
    assert controls.rescale(torch.tensor([[0.0, 0.0], [0.2, 0.2]])).tolist() == [[0, 0], [0.5, 0.5]]


def test_a_run_of_a_control_is_read_by_its_own_commands_alone(trained, tmp_path, capsys):
    run = tmp_path / "plain"
    flags = f"--out {run} --init {trained(SMALL)} --steps 1 --diminishing dim"
    controls.main(["plain_copy", "train", *flags.split()])
    assert "Control" not in network.Decoder.__name__
    with pytest.raises(ValueError, match="plain_copy"):
        load_run(run)
    with pytest.raises(SystemExit):
        controls.main(["plain", "train"])
    assert "say which control (plain_copy, renormalised)" in capsys.readouterr().err
