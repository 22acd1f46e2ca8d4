"""A BART made of a BERT: where the summarisers of dialogues begin.

python -m encdec_sentence_sparse.experiments.samsum.minilm_bart BERT DATA FOLDER

BERT is a folder, here of MiniLM. The layers map one to one, for both models normalise after the
residual sum. FOLDER loads by --model in all packages.
"""

from pathlib import Path

import torch
import tyro
from transformers import AutoTokenizer, BartForConditionalGeneration, BertModel

from shared.data import load
from shared.run import one_line_errors

from ...model import bart_config

NAMES = {
    "attention.self.query": "self_attn.q_proj",
    "attention.self.key": "self_attn.k_proj",
    "attention.self.value": "self_attn.v_proj",
    "attention.output.dense": "self_attn.out_proj",
    "attention.output.LayerNorm": "self_attn_layer_norm",
    "intermediate.dense": "fc1",
    "output.dense": "fc2",
    "output.LayerNorm": "final_layer_norm",
}


@torch.no_grad()
def bart_of(bert: BertModel, begin: int, end: int, layers: int = 3) -> BartForConditionalGeneration:
    """A BART whose encoder gives the states of `bert` (segment 0).

    `begin` and `end` are the ids of [CLS] and [SEP]. Each of the decoder's `layers` begins as one
    of BERT's, the last one as its last.
    """
    c = bert.config
    config = bart_config(
        c.vocab_size,
        c.hidden_size,
        c.intermediate_size,
        c.num_attention_heads,
        c.num_hidden_layers,
        c.max_position_embeddings,
        bos_token_id=begin,
        eos_token_id=end,
        pad_token_id=c.pad_token_id,
        forced_eos_token_id=end,
        decoder_start_token_id=end,
    )
    config.decoder_layers = layers
    bart = BartForConditionalGeneration(config)
    encoder, decoder, embeddings = bart.get_encoder(), bart.get_decoder(), bert.embeddings
    bart.model.shared.weight.copy_(embeddings.word_embeddings.weight)
    for side in (encoder, decoder):
        segment = embeddings.token_type_embeddings.weight[0]
        # BART's positions begin at 2.
        side.embed_positions.weight[2:] = embeddings.position_embeddings.weight + segment
        side.layernorm_embedding.load_state_dict(embeddings.LayerNorm.state_dict())
    chosen = bert.encoder.layer[-1 :: -(c.num_hidden_layers // layers)]  # from the last one down
    pairs = [*zip(bert.encoder.layer, encoder.layers, strict=True)]
    pairs += zip(chosen, decoder.layers[::-1], strict=False)
    for old, new in pairs:
        for theirs, ours in NAMES.items():
            new.get_submodule(ours).load_state_dict(old.get_submodule(theirs).state_dict())
    # Cross-attention begins as what looks for like words: BERT's last self-attention.
    for layer in decoder.layers:
        layer.encoder_attn.load_state_dict(encoder.layers[-1].self_attn.state_dict())
    bart.generation_config.update(num_beams=4, max_length=100)
    return bart.eval()


def main(bert: Path, data: str, folder: Path) -> None:
    """BERT DATA FOLDER: write a BART made of a BERT; DATA says how frequent tokens are."""
    if not bert.is_dir():
        raise ValueError(f"there is no folder {str(bert)!r}: give a BERT's")
    ends = dict(bos_token="[CLS]", eos_token="[SEP]")
    tokenizer = AutoTokenizer.from_pretrained(bert, **ends, trust_remote_code=False)
    bart = bart_of(BertModel.from_pretrained(bert), tokenizer.bos_token_id, tokenizer.eos_token_id)
    summaries = tokenizer([example.target for example in load(data, "train")])["input_ids"]
    counts = torch.bincount(torch.tensor(sum(summaries, [])), minlength=len(tokenizer)) + 0.1
    # How frequent tokens are in summaries: the first loss is 6.6 and not 10.
    bart.final_logits_bias[0] = (counts / counts.sum()).log()
    bart.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    one_line_errors(
        lambda words: tyro.cli(main, args=words, config=[tyro.conf.PositionalRequiredArgs])
    )()
