from vllm import LLM, SamplingParams

llm = LLM(
    model="smollm2",
    max_model_len=512,
    tensor_parallel_size=1,
    dtype="auto",
    trust_remote_code=False,
    gpu_memory_utilization=0.9,
    enforce_eager=True,
)
tokenizer = llm.get_tokenizer()
sampling_params = llm.get_default_sampling_params()
sampling_params = SamplingParams(n=2, temperature=0.7, top_k=40, max_tokens=10, logprobs=1, stop=["\n\n"], seed=3)
conversation = [
    {"role": "system", "content": "You are a helpful assistant."},
    {"role": "user", "content": "Name a river."},
]
outputs = llm.chat(conversation, sampling_params, use_tqdm=False, lora_request=None)
for output in outputs:
    assert output.finished
    assert output.prompt_token_ids
    for completion in output.outputs:
        chosen = [
            entries[token].logprob for token, entries in zip(completion.token_ids, completion.logprobs, strict=True)
        ]
        print(completion.index, repr(completion.text), completion.finish_reason, round(sum(chosen), 3))

both = llm.chat([conversation, conversation[1:]], sampling_params)
print(len(both), [len(output.outputs) for output in both])
print(
    llm.generate({"prompt_token_ids": tokenizer.encode("One, two,")}, SamplingParams(temperature=0))[0].outputs[0].text
)
