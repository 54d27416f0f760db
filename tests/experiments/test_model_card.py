"""The card of the shipped model says what was measured, and nothing else."""

from tests.experiments.test_results import script

from transformer.checkpoints import load_weights


def test_the_card_is_what_its_script_writes():
    made = script("model_card")
    written = (made.SHIPPED / "MODEL_CARD.md").read_text("utf-8")
    assert written == made.card()


def test_the_weights_fit_15_megabytes_and_carry_their_licence():
    folder = script("model_card").SHIPPED
    assert (folder / "model.safetensors").stat().st_size < 15e6
    licence = (folder / "LICENSE-MPL-2.0").read_text("utf-8")
    assert "Mozilla Public License Version 2.0" in licence
    load_weights(folder / "model.safetensors")
