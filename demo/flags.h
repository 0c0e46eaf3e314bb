// The command-line flags of the text programs as gflags variables. Only options.cpp reads them;
// how they are spelled, checked and listed is flag_table.h.
#pragma once

#include <gflags/gflags_declare.h>

DECLARE_string(model);
DECLARE_string(tokenizer);
DECLARE_string(input);
DECLARE_string(output);
DECLARE_string(prompt);
DECLARE_string(file);
DECLARE_string(system_prompt);
DECLARE_string(messages);
DECLARE_bool(raw);
DECLARE_string(image);
DECLARE_int64(max_pixels);
DECLARE_int64(min_pixels);
DECLARE_int64(image_max_tokens);
DECLARE_string(think);
DECLARE_bool(show_thinking);
DECLARE_int32(reasoning_budget);

DECLARE_int32(max_tokens);
DECLARE_double(temp);
DECLARE_int32(top_k);
DECLARE_double(top_p);
DECLARE_double(min_p);
DECLARE_double(repetition_penalty);
DECLARE_double(presence_penalty);
DECLARE_double(frequency_penalty);
DECLARE_uint64(seed);
DECLARE_bool(use_generation_config);
DECLARE_string(stop);
DECLARE_bool(ignore_eos);
DECLARE_string(json_schema);
DECLARE_int32(logprobs);
DECLARE_string(speculative);
DECLARE_int32(num_speculative_tokens);
DECLARE_int32(num_samples);
DECLARE_int32(beam_width);
DECLARE_string(overflow);

DECLARE_bool(paged_attention);
DECLARE_int32(block_size);
DECLARE_int32(max_context);
DECLARE_bool(prefix_cache);
DECLARE_int64(prefix_cache_size);
DECLARE_string(kv_cache_dtype);
DECLARE_double(gpu_memory_utilization);
DECLARE_uint64(kv_cache_memory);
DECLARE_int32(num_blocks);
DECLARE_int32(max_num_batched_tokens);
DECLARE_int32(max_num_seqs);
DECLARE_bool(cuda_graph);
DECLARE_bool(fused_ffn);
DECLARE_bool(fused_rope_kv);
DECLARE_bool(fused_gqa);
DECLARE_string(attention);
DECLARE_string(deterministic);
DECLARE_string(device);
DECLARE_string(dtype);
DECLARE_int32(threads);

DECLARE_bool(interactive);
DECLARE_bool(stream);
DECLARE_int32(max_history);
DECLARE_string(history_thinking);
DECLARE_string(session);
DECLARE_string(output_format);
DECLARE_bool(quiet);
DECLARE_bool(verbose);
DECLARE_string(log_level);
DECLARE_string(log_file);
DECLARE_bool(stats);
DECLARE_string(stats_json);
DECLARE_string(color);
DECLARE_bool(benchmark);
DECLARE_int32(benchmark_decode_tokens);
DECLARE_string(benchmark_prompt_tokens);
DECLARE_int32(repetitions);
DECLARE_bool(verify_paged);
DECLARE_string(dump_tokens);
DECLARE_string(dump_logits);
DECLARE_bool(tokenize);
DECLARE_bool(dry_run);
