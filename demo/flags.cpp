#include "demo/flags.h"

#include <gflags/gflags.h>

// The texts are what --help prints.

// Model and input.
DEFINE_string(model, "", "model: Hugging Face directory, .safetensors or packed .bin");
DEFINE_string(tokenizer, "", "tokenizer.json, its directory, or a .model (default: the model's)");
DEFINE_string(input, "", "requests, one JSON object per line, - = standard input");
DEFINE_string(output, "", "answers, one line per request, in order, - = standard output");
DEFINE_string(prompt, "", "one user message");
DEFINE_string(file, "", "read the user message from a file, - = standard input");
DEFINE_string(system_prompt, "", "system message, \"\" = none (default: the chat template's own)");
DEFINE_string(messages, "", "OpenAI-style messages, a JSON file");
DEFINE_bool(raw, false, "no chat template: the prompt is fed as it is");
DEFINE_string(image, "", "image file");
DEFINE_int64(max_pixels, 1003520, "largest image");
DEFINE_int64(min_pixels, 0, "smallest image");
DEFINE_int64(image_max_tokens, 0, "largest image, in tokens");
DEFINE_string(think, "auto", "Qwen3 thinking; auto = the chat template's own, on");
DEFINE_bool(show_thinking, false, "print the reasoning (--hide-thinking: do not)");
DEFINE_int32(reasoning_budget, -1, "thinking tokens before </think> is forced, -1 = no limit");

// Generation.
DEFINE_int32(max_tokens, 256, "tokens to generate at most");
DEFINE_double(temp, 0, "temperature, 0 = greedy");
DEFINE_int32(top_k, 0, "sample among the k most likely tokens, 0 = all");
DEFINE_double(top_p, 1, "sample among the most likely tokens of this total probability");
DEFINE_double(min_p, 0, "sample among tokens at least this likely, relative to the likeliest");
DEFINE_double(repetition_penalty, 1, "divides the logits of tokens seen before");
DEFINE_double(presence_penalty, 0, "subtracted from the logits of generated tokens");
DEFINE_double(frequency_penalty, 0, "the same per occurrence");
DEFINE_uint64(seed, 0, "of the sampler");
DEFINE_bool(use_generation_config, false, "sampling of generation_config.json, where not given");
DEFINE_string(stop, "", "end the answer before this string; may be repeated");
DEFINE_bool(ignore_eos, false, "generate on after the end-of-sequence token");
DEFINE_string(json_schema, "", "constrain the answer");
DEFINE_int32(logprobs, 0, "alternatives per token in JSON output");
DEFINE_string(speculative, "none", "guess tokens ahead");
DEFINE_int32(num_speculative_tokens, 8, "guesses per step");
DEFINE_int32(num_samples, 1, "answers to the prompt; answer i is that of --seed + i");
DEFINE_int32(beam_width, 1, "answer by beam search with this many beams");
DEFINE_double(length_penalty, 1, "of beam search: above 0 favours long answers, below short ones");
DEFINE_string(overflow, "error", "prompt longer than the context: fail, or drop the oldest turns");

// KV cache and execution.
DEFINE_bool(paged_attention, false, "KV cache in pages with a block table (kuiper_batch: on)");
DEFINE_int32(block_size, 16, "tokens per page, a power of two from 1 to 256");
DEFINE_int32(max_context, 0, "context length (default: 8192 or the model's limit)");
DEFINE_bool(prefix_cache, false, "reuse keys and values of earlier prompts (kuiper_batch: on)");
DEFINE_int64(prefix_cache_size, 65536, "tokens kept for reuse, clamped to the pool");
DEFINE_string(kv_cache_dtype, "auto", "type of keys and values");
DEFINE_double(gpu_memory_utilization, 0.9,
              "share of the available memory that may be used (default: 0.9, integrated GPUs 0.8)");
DEFINE_uint64(kv_cache_memory, 0, "size of the KV cache, e.g. 512M (default: as --num-blocks)");
DEFINE_int32(num_blocks, 0,
             "size of the KV cache in pages (default: a context per sequence, or what fits)");
DEFINE_int32(max_num_batched_tokens, 512, "tokens of one prefill step");
DEFINE_int32(max_num_seqs, 16, "requests that run at the same time");
DEFINE_string(policy, "throughput", "many requests at once, or two with the least delay");
DEFINE_string(on_full, "preempt",
              "full KV cache: others wait, the answer stops, or its text slides");
DEFINE_string(preemption, "recompute", "how a request that had to wait gets its KV cache back");
DEFINE_uint64(swap_space, 1ull << 30, "host memory for --preemption swap and auto, e.g. 512M");
DEFINE_bool(cuda_graph, true, "record the decode step once and replay it (CPU: only when given)");
DEFINE_bool(fused_ffn, true, "fused feed-forward kernels");
DEFINE_bool(fused_rope_kv, false, "fused kernels");
DEFINE_bool(fused_gqa, false, "fused kernels");
DEFINE_string(attention, "flash1", "attention kernel");
DEFINE_bool(cascade_attention, true,
            "read pages that requests share once (default: on the CPU and with flash2)");
DEFINE_string(deterministic, "on",
              "see Guarantees; strict: prefill equals decode to the bit on a GPU, too");
DEFINE_string(device, "", "cpu, simt or cuda:N (default: cuda:0 if usable, else cpu)");
DEFINE_string(dtype, "auto", "convert the weights; auto = as stored");
DEFINE_int32(threads, 0, "CPU threads (default: one per core)");

// Session and output.
DEFINE_bool(interactive, false, "chat; with piped input one line is one turn");
DEFINE_bool(stream, false, "print text as it is produced (default: chat on a terminal)");
DEFINE_int32(max_history, 10, "earlier turns kept in a chat");
DEFINE_string(history_thinking, "strip", "reasoning of earlier turns");
DEFINE_string(session, "", "load the conversation from this JSON file and save it there");
DEFINE_string(output_format, "text", "form of standard output");
DEFINE_bool(quiet, false, "only the answer on stdout, only warnings and errors on stderr");
DEFINE_bool(verbose, false, "more log lines");
DEFINE_string(log_level, "info", "least important lines on stderr");
DEFINE_string(log_file, "", "also write the log to this file");
DEFINE_bool(stats, true, "statistics on stderr");
DEFINE_string(stats_json, "", "statistics to this file, one JSON object per answer");
DEFINE_string(color, "auto", "auto: on a terminal without NO_COLOR");
DEFINE_bool(benchmark, false, "measure prefill and decode, print CSV");
DEFINE_int32(benchmark_decode_tokens, 1024, "tokens to decode per row");
DEFINE_string(benchmark_prompt_tokens, "256,512,1024,2048,4096", "prompt lengths");
DEFINE_int32(repetitions, 1, "rows per prompt length");
DEFINE_bool(verify_paged, false, "run contiguous and paged, compare ids and logits to the bit");
DEFINE_string(dump_tokens, "", "write the generated ids, one per line");
DEFINE_string(dump_logits, "", "write the logits of each token, .npy float32 [tokens, vocab]");
DEFINE_bool(tokenize, false, "print the ids of the prompt and exit");
DEFINE_bool(dry_run, false, "print the memory plan and exit 0 or 7");
