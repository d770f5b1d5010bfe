from vllm import LLM, SamplingParams


def main():
    prompts = ["The first three planets are", "Water boils at", "def add(a, b):"]
    sampling_params = SamplingParams(temperature=0.8, top_p=0.95, max_tokens=12, seed=1)
    llm = LLM(model="smollm2")
    outputs = llm.generate(prompts, sampling_params)
    for output in outputs:
        print(f"{output.prompt!r} -> {output.outputs[0].text!r}")


if __name__ == "__main__":
    main()
