"""What other toolkits call a setting: JoeyNMT, OpenNMT-py, eole, Marian, fairseq, Sockeye.

Keys of their configuration files (or options of their commands), lower case and with ``_`` for ``-``.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence

_CORPUS = re.compile(r"corpus_?\d+")

_OURS: Mapping[str, str] = {
    # text
    "data.source": "source_lang src_lang lang_src src",
    "data.target": "target_lang tgt_lang trg_lang lang_trg trg tgt",
    "data.train": "path_src path_tgt trainpref train_sets train_data train_path",
    "data.valid": "dev dev_path devpref validpref valid_sets valid_data validation_data val",
    "data.test": "testpref test_path",
    "data.prepared": "save_data destdir",
    "data.vocabulary": "src_vocab tgt_vocab trg_vocab vocab vocabs src_vocab_path tgt_vocab_path",
    "data.vocabulary.type": "src_subword_type tgt_subword_type tokenizer_type tokenizer",
    "data.vocabulary.size": "src_vocab_size tgt_vocab_size vocab_size voc_limit bpe_size dim_vocabs",
    "data.vocabulary.joint": "share_vocab joined_dictionary joint_vocab",
    "data.vocabulary.sampling": "bpe_dropout src_subword_alpha tgt_subword_alpha sentencepiece_alphas",
    "data.filters.max_length": "src_seq_length tgt_seq_length max_sent_length max_source_positions "
    "max_target_positions max_sentence_length max_len max_seq_len",
    # model
    "model.d_model": "hidden_size rnn_size word_vec_size embedding_dim dim_emb embed_dim encoder_embed_dim "
    "decoder_embed_dim emb_size model_dim dim_model hidden_dim transformer_model_size",
    "model.heads": "num_heads transformer_heads encoder_attention_heads decoder_attention_heads n_heads "
    "attention_heads transformer_attention_heads",
    "model.feed_forward": "transformer_ff ff_size dim_ffn transformer_dim_ffn encoder_ffn_embed_dim "
    "decoder_ffn_embed_dim ffn_embed_dim ffn_dim d_ff transformer_feed_forward_num_hidden",
    "model.encoder.layers and model.decoder.layers": "layers num_layers n_layers",
    "model.encoder.layers": "enc_layers encoder_layers enc_depth num_encoder_layers",
    "model.decoder.layers": "dec_layers decoder_layers dec_depth num_decoder_layers",
    "model.dropout": "transformer_dropout attention_dropout activation_dropout relu_dropout hidden_dropout "
    "transformer_dropout_attention transformer_dropout_ffn",
    "model.activation": "activation_fn pos_ffn_activation_fn transformer_ffn_activation mlp_activation_fn",
    "model.embeddings.tie": "share_embeddings share_decoder_embeddings share_all_embeddings tied_embeddings "
    "tied_embeddings_all tied_embeddings_src tied_softmax share_decoder_input_output_embed",
    "model.positions": "position_encoding position_encoding_type learned_pos transformer_train_positions",
    "model.initialization": "param_init param_init_glorot param_init_method initializer embed_initializer",
    "model.encoder.connection and model.decoder.connection": "encoder_normalize_before "
    "decoder_normalize_before normalize_before layer_norm transformer_preprocess transformer_postprocess",
    "model.encoder.mixer and model.decoder.mixer": "type encoder_type decoder_type self_attn_type",
    # length and batches
    "training.max_updates": "train_steps max_update updates max_steps num_updates total_num_update "
    "after_batches total_steps steps",
    "training.stop_after": "max_epoch max_epochs epochs after_epochs num_epochs num_train_epochs",
    "training.batch_tokens": "batch_size batch_type max_tokens mini_batch mini_batch_words mini_batch_fit "
    "tokens_per_batch update_freq accum_count batch_multiplier optimizer_delay "
    "gradient_accumulation_steps grad_accum per_device_train_batch_size",
    "training.micro_batch_tokens": "workspace max_generator_batches",
    # optimizer and schedule
    "training.optimizer": "optim optimiser",
    "training.optimizer.betas": "adam_beta1 adam_beta2 adam_betas optimizer_params",
    "training.optimizer.eps": "adam_eps",
    "training.schedule": "lr_scheduler scheduling decay_method scheduler lr_decay lr_decay_strategy",
    "training.schedule.peak": "lr learning_rate learn_rate initial_learning_rate",
    "training.schedule.warmup": "warmup_steps warmup_updates learning_rate_warmup lr_warmup warmup "
    "num_warmup_steps",
    "training.schedule.initial": "warmup_init_lr",
    "training.schedule.minimum": "learning_rate_min min_lr stop_min_lr",
    "training.clip_norm": "clip_grad_norm max_grad_norm clip_gradients clip_grad_val",
    "training.ema": "exponential_smoothing average_decay ema_decay",
    "training.label_smoothing": "criterion smoothing",
    # watching and keeping
    "training.validation.every": "valid_steps validation_freq valid_freq validate_interval_updates "
    "validate_interval eval_steps",
    "training.validation.metrics": "eval_metric eval_metrics valid_metrics train_eval_steps eval_bleu "
    "eval_bleu_args",
    "training.validation.metric": "early_stopping_metric best_checkpoint_metric early_stopping_criteria "
    "early_stopping_on",
    "training.early_stopping.patience": "patience",
    "training.checkpoint.every": "save_checkpoint_steps save_freq save_every save_interval_updates "
    "save_interval save_steps checkpoint_interval",
    "training.checkpoint.keep_last": "keep_checkpoint keep_last_epochs keep_interval_updates keep_last_ckpts",
    "training.checkpoint.keep_best": "keep_best_ckpts keep_best keep_best_checkpoints",
    "training.log_every": "logging_freq report_every disp_freq log_interval logging_steps",
    "training.start_from": "train_from load_model restore_file pretrained_model finetune_from_model "
    "init_from load_encoder",
    "run": "save_model model_path model_dir save_dir output_dir output name",
    "seed": "random_seed",
    # where
    "training.precision": "fp16 bf16 model_dtype compute_dtype use_amp amp",
    "training.device": "use_cuda gpu_ranks gpu_id devices gpu cuda gpus",
    "training.processes": "world_size n_gpu num_devices",
    "training.threads": "cpu_threads num_threads",
    "training.tensorboard": "tensorboard_logdir tensorboard_log_dir",
    # translating
    "decoding": "testing inference generation",
    "decoding.beam": "beam_size num_beams",
    "decoding.length_penalty": "beam_alpha lenpen normalize alpha length_penalty_weight",
    "decoding.max_length_ratio": "max_output_length max_length_factor max_len_a",
}  # fmt: skip

BESIDE_TEXT = {"path_src": "source_file", "path_tgt": "target_file"}
"""Names of the files of a corpus, where ours may stand too."""

BY_NAME = {name: tuple(ours.split(" and ")) for ours, names in _OURS.items() for name in names.split()}


def our_name(path: Sequence[str], known: Container[str]) -> str:
    """Our settings for a key that other toolkits have; empty where none has it.

    Args:
        path: The key and what it stands in; settings that stand there too go before others.
        known: The dotted keys of what is read: a run file, or one section of it.
    """
    *parents, word = path
    word = word.lower().replace("-", "_")
    ours = ("data.train",) if _CORPUS.fullmatch(word) else BY_NAME.get(word, ())
    known_keys = [key for dotted in ours for key in (dotted, dotted.partition(".")[2]) if key in known]
    beside = [name for name in known_keys if name.rpartition(".")[0] == ".".join(parents)]
    return " and ".join(beside or known_keys)
