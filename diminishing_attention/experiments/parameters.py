"""Table 1's column of parameters, from the paper's presets: python -m diminishing_attention.experiments.parameters"""

from torch import device, nn

from ..bertsum.bert_text import make_tokenizer
from ..bertsum.bertsum import new_encoder
from ..config import PRESETS, TrainConfig
from ..loading import make_model

PIECES = 30_522  # of bert-base-uncased
TABLE_1 = {  # row: preset, what the paper prints
    "PG": ("paper", "27.9M"),
    "PG + Cov.": ("paper-coverage", "27.9M +512"),
    "PG + DimAttn": ("paper-dim", "27.9M"),
    "PG + DyDimAttn": ("paper-dydim", "27.9M"),
    "6-layer Transformer": ("paper-transformer", "128.2M"),
    "BSEA": ("paper-bertsum-abs", "180.2M"),
}


def paper_model(preset: str) -> nn.Module:
    """The model of a preset, or of one on top of --preset paper, on the device `meta`, which holds no numbers."""
    from transformers import BertConfig, BertModel

    config = TrainConfig(**PRESETS[preset] if "model" in PRESETS[preset] else PRESETS["paper"] | PRESETS[preset])
    with device("meta"):
        if config.model == "pointer":
            return make_model(config, range(config.vocabulary))
        bert = BertModel(BertConfig()) if config.pretrained else new_encoder(PIECES, 512, config)
        return make_model(config, make_tokenizer([], 0, 512), bert)


def count(model: nn.Module) -> tuple[int, int]:
    """Parameters; and with the embedding that a pointer-generator's two parts share counted in both."""
    once = sum(parameter.numel() for parameter in model.parameters())
    return once, sum(parameter.numel() for part in model.parts() for parameter in part)


def main() -> None:
    print(f"{'':20} {'parameters':>12} {'by parts':>12}   paper")
    for name, (preset, printed) in TABLE_1.items():
        once, by_parts = count(paper_model(preset))
        print(f"{name:20} {once:12,} {by_parts:12,}   {printed}")


if __name__ == "__main__":
    main()
