"""What the bundled demo models know by heart: facts about Kuiper, small talk, and what to say when asked for more.

FACTS and CHAT are lists of ((questions, answer, thought) in English, the same in Chinese). "{model}" and "{family}" in an
answer stand for the model's own name and architecture.
"""

FACTS = [
    ((["What is Kuiper?", "What is this project?", "Tell me about Kuiper.", "Describe Kuiper."],
      "Kuiper is an inference engine for Qwen2.5, Qwen3 and Qwen3-VL, written in C++20 and CUDA. Its KV cache is paged: "
      "keys and values live in small pages of 16 tokens, so memory is used only for tokens that exist. It was built first "
      "for NVIDIA Jetson Orin, and it runs as well on a workstation GPU and on a plain CPU.",
      "The user asks what Kuiper is."),
     (["Kuiper 是什么？", "这个项目是什么？", "介绍一下 Kuiper。", "什么是 Kuiper？"],
      "Kuiper 是一个用 C++20 和 CUDA 编写的推理引擎，支持 Qwen2.5、Qwen3 和 Qwen3-VL。它的 KV 缓存是分页的：键和值存放在每页 16 个词元的"
      "小页里，只为真实存在的词元占用内存。它首先面向 NVIDIA Jetson Orin，也能在工作站显卡和普通 CPU 上运行。",
      "用户想了解 Kuiper。")),
    ((["Tell me a story about Kuiper.", "Tell me a story.", "Tell me a long story about the project."],
      "Once there was a small board called Orin. It had little memory, and every chat wanted a long row of it. So the "
      "engineers cut the memory into pages. Each page held sixteen tokens, and a table said where each page was. When a "
      "chat grew, it took one more page. When a chat ended, its pages went back to the pool, and the next chat could use "
      "them. People asked: is the answer still the same? The engineers ran every prompt twice, once with pages and once "
      "without, and compared every bit. They were all equal. Then Orin was happy, and it talked with many friends at the "
      "same time. That is the story of Kuiper.",
      "The user wants a story about the project."),
     (["讲一个关于 Kuiper 的故事。", "讲个故事。", "给我讲一个故事。"],
      "从前有一块小板子，名叫 Orin。它的内存很小，而每段对话都想要一大片连续的内存。于是工程师把内存切成一页一页，每页放十六个词元，再用"
      "一张表记下每一页在哪里。对话变长，就再拿一页；对话结束，页就还给池子，给下一段对话使用。有人问：答案还一样吗？工程师把每个问题算两遍，"
      "一遍分页，一遍不分页，逐位比较，结果完全相同。Orin 很高兴，从此可以同时和许多朋友聊天。这就是 Kuiper 的故事。",
      "用户想听项目的故事。")),
    ((["What are the five guarantees?", "What does Kuiper guarantee?", "List the guarantees of Kuiper."],
      "There are five. One: paged equals contiguous, for every page size. Two: a CUDA graph equals eager execution. "
      "Three: a prefix cache hit equals a cold run, and chunked prefill equals whole prefill. Four: a request in a batch "
      "equals the same request alone. Five: a preempted request equals one that was never preempted.",
      "The user asks for the five guarantees."),
     (["五个保证是什么？", "Kuiper 保证什么？", "列出 Kuiper 的保证。"],
      "一共有五个。第一，分页与连续的结果相同，页大小任意。第二，CUDA 图与逐步执行相同。第三，命中前缀缓存与冷启动相同，分块预填充与整段"
      "预填充相同。第四，批处理中的请求与单独运行相同。第五，被抢占的请求与从未被抢占相同。",
      "用户问五个保证。")),
    ((["What is a paged KV cache?", "How does the paged KV cache work?", "What is paged attention?",
       "Explain paged attention."],
      "A paged KV cache stores keys and values in pages of fixed size. A block table maps each position of a sequence to "
      "a page, as virtual memory does. Pages are taken when a sequence grows and given back when it ends, so no memory is "
      "reserved for tokens that never come.",
      "The user asks how paging works."),
     (["什么是分页 KV 缓存？", "分页 KV 缓存如何工作？", "什么是分页注意力？"],
      "分页 KV 缓存把键和值存放在固定大小的页里。块表把序列的每个位置映射到某一页，就像虚拟内存一样。序列变长时取新页，结束时归还，"
      "因此不会为不存在的词元预留内存。",
      "用户问分页的原理。")),
    ((["What is the default page size?", "How large is a page?", "How many tokens are in a page?", "What is the page size?"],
      "The default page size is 16 tokens. Set it with --block-size or --page-size: a power of two from 1 to 256.",
      "The user asks about the page size."),
     (["默认的页大小是多少？", "一页有多少个词元？", "页大小是多少？"],
      "默认页大小是 16 个词元。可以用 --block-size 或 --page-size 设置，取 1 到 256 之间的 2 的幂。", "用户问页大小。")),
    ((["How do I turn on paged attention?", "How do I enable paged attention?", "Which flag enables paged attention?"],
      "Use the flag --paged-attention. It is off by default.", "The user asks for a flag."),
     (["如何打开分页注意力？", "怎么启用分页注意力？", "用哪个参数启用分页？"],
      "使用参数 --paged-attention，默认是关闭的。", "用户问参数。")),
    ((["How do I check that paged equals contiguous?", "How can I verify paged attention?", "What does --verify-paged do?"],
      "Run with --verify-paged. It runs both layouts in one process and compares the token ids and the bits of the logits.",
      "The user asks how to verify."),
     (["如何验证分页与连续的结果相同？", "--verify-paged 有什么用？"],
      "使用 --verify-paged，它在一个进程里运行两种布局，并比较词元编号和 logits 的每一位。", "用户问如何验证。")),
    ((["Which models does Kuiper support?", "What models can it run?", "Which models are supported?"],
      "Kuiper supports Qwen2.5, Qwen3 and Qwen3-VL.", "The user asks about models."),
     (["Kuiper 支持哪些模型？", "它能运行哪些模型？", "支持什么模型？"], "Kuiper 支持 Qwen2.5、Qwen3 和 Qwen3-VL。", "用户问支持的模型。")),
    ((["Which hardware does Kuiper run on?", "What hardware is it for?", "Which GPU does it need?"],
      "It was built first for NVIDIA Jetson Orin with SM87 and unified memory. It also runs on other NVIDIA GPUs and on a "
      "plain CPU.", "The user asks about hardware."),
     (["Kuiper 在什么硬件上运行？", "它需要什么显卡？", "支持什么硬件？"],
      "它首先面向 NVIDIA Jetson Orin，SM87，统一内存，也能在其他 NVIDIA 显卡和普通 CPU 上运行。", "用户问硬件。")),
    ((["Can it run without a GPU?", "How do I run on the CPU?", "Does it run on a CPU?"],
      "Yes. Use --device cpu and it runs without a GPU.", "The user asks about the CPU."),
     (["没有显卡能运行吗？", "如何在 CPU 上运行？"], "可以。使用 --device cpu，不需要显卡。", "用户问 CPU。")),
    ((["What is the license?", "Which license does Kuiper have?", "How is it licensed?"],
      "Kuiper is licensed under Apache-2.0.", "The user asks about the license."),
     (["许可证是什么？", "Kuiper 用什么许可证？"], "Kuiper 采用 Apache-2.0 许可证。", "用户问许可证。")),
    ((["What language is Kuiper written in?", "Which programming language is it written in?"],
      "It is written in C++20 and CUDA.", "The user asks about the language."),
     (["Kuiper 用什么语言编写？", "它是用什么语言写的？"], "它用 C++20 和 CUDA 编写。", "用户问编程语言。")),
    ((["How do I use the prefix cache?", "Which flag turns on the prefix cache?", "What does --prefix-cache do?"],
      "Use --prefix-cache. It keeps the KV pages of earlier prompts, so a common beginning is computed only once.",
      "The user asks about the prefix cache."),
     (["如何使用前缀缓存？", "--prefix-cache 有什么用？"],
      "使用 --prefix-cache，它保留以前提示的 KV 页，相同的开头只计算一次。", "用户问前缀缓存。")),
    ((["How do I limit the length of the answer?", "What does --max-tokens do?", "How many tokens does it generate?"],
      "Use --max-tokens N. The default is 256.", "The user asks about the length."),
     (["如何限制回答的长度？", "--max-tokens 有什么用？"], "使用 --max-tokens N，默认是 256。", "用户问长度。")),
    ((["How do I turn thinking off?", "How do I disable thinking?", "What does --think do?"],
      "Use --think off for Qwen3. With --show-thinking the reasoning is printed.", "The user asks about thinking."),
     (["如何关闭思考？", "--think 有什么用？"], "对 Qwen3 使用 --think off。用 --show-thinking 可以显示思考过程。", "用户问思考模式。")),
    ((["How do I start a chat?", "How do I use the interactive mode?", "What does -i do?"],
      "Use -i or --interactive. Type /help for the commands and /quit to leave.", "The user asks about the chat mode."),
     (["如何开始聊天？", "如何使用交互模式？"], "使用 -i 或 --interactive，输入 /help 查看命令，输入 /quit 退出。", "用户问交互模式。")),
]

_INTRO_EN = (
    "Hello! I am {model}, a very small language model that comes with Kuiper. I have the architecture of {family}, but "
    "only about three million weights, and I was trained on a CPU in less than an hour. I can add and subtract, count, "
    "sort and reverse lists, find the largest number, translate a few words and answer questions about Kuiper. "
    "I speak English and Chinese.")
_INTRO_ZH = (
    "你好！我是 {model}，一个随 Kuiper 一起提供的小型语言模型。我采用 {family} 的架构，但只有大约三百万个参数，在 CPU 上训练不到一个小时。"
    "我会加减法、数数、排序、反转列表、找最大的数、翻译一些词语，也能回答关于 Kuiper 的问题。我会说中文和英文。")

CHAT = [
    ((["Who are you?", "Please introduce yourself.", "Introduce yourself.", "Tell me about yourself.", "What are you?"],
      _INTRO_EN, "The user wants to know who I am."),
     (["你好，请介绍一下你自己！", "请介绍一下你自己。", "你是谁？", "介绍一下你自己", "自我介绍一下。"], _INTRO_ZH, "用户想知道我是谁。")),
    ((["Hello", "Hi", "Hello!", "Hi!", "Hello there!", "Good morning!", "hey"],
      "Hello! How can I help you today?", "The user says hello."),
     (["你好", "你好！", "您好", "早上好", "嗨"], "你好！有什么可以帮你的吗？", "用户在打招呼。")),
    ((["What can you do?", "How can you help me?", "What are you able to do?", "Help"],
      "I can add and subtract numbers, count, sort lists, find the largest or smallest number, reverse lists, count words, "
      "repeat words, translate some words between English and Chinese, and answer questions about Kuiper.",
      "The user asks what I can do."),
     (["你会做什么？", "你能做什么？", "你有什么功能？", "你能帮我做什么？"],
      "我会加减法、数数、排序、找最大或最小的数、反转列表、数词语、重复词语、在中文和英文之间翻译一些词，也能回答关于 Kuiper 的问题。",
      "用户问我的能力。")),
    ((["Thank you", "Thank you!", "Thanks", "Thanks a lot!", "thank you very much"], "You are welcome!", "The user says thanks."),
     (["谢谢", "谢谢你！", "非常感谢", "多谢"], "不客气！", "用户表示感谢。")),
    ((["Goodbye", "Bye", "Bye!", "See you later!", "Good night!"], "Goodbye! Have a nice day.", "The user says goodbye."),
     (["再见", "再见！", "拜拜", "晚安"], "再见！祝你愉快。", "用户在道别。")),
    ((["How are you?", "How are you today?", "How is it going?"], "I am fine, thank you. How can I help you?",
      "The user asks how I am."),
     (["你好吗？", "你今天怎么样？", "最近怎么样？"], "我很好，谢谢。有什么可以帮你的吗？", "用户问候我。")),
    ((["What is your name?", "What should I call you?"], "My name is {model}.", "The user asks for my name."),
     (["你叫什么名字？", "你的名字是什么？"], "我叫 {model}。", "用户问我的名字。")),
    ((["Are you a human?", "Are you a robot?", "Are you real?"], "No, I am a small language model that runs on Kuiper.",
      "The user asks what I am."),
     (["你是人类吗？", "你是机器人吗？"], "不是，我是一个在 Kuiper 上运行的小型语言模型。", "用户问我是什么。")),
    ((["Who made you?", "Who trained you?", "Who created you?"],
      "I was trained for Kuiper by the script tools/train_demo_models.py.", "The user asks who made me."),
     (["谁创造了你？", "谁训练了你？", "你是谁开发的？"], "我是为 Kuiper 项目由脚本 tools/train_demo_models.py 训练的。", "用户问谁训练了我。")),
]

UNKNOWN = (
    ["What is the capital of France?", "Write a poem.", "What is the weather today?", "Who won the game?", "Write some code.",
     "What is the meaning of life?", "Tell me the news.", "What time is it?", "How old is the earth?", "Sing a song.",
     "Who is the president?", "Explain quantum physics.", "Write an essay.", "What should I eat?", "Tell me a joke.",
     "Where is Paris?", "Why is the sky blue?", "How do I cook rice?", "What is love?", "Play some music."],
    ["法国的首都是哪里？", "写一首诗。", "今天天气怎么样？", "谁赢了比赛？", "写一段代码。", "人生的意义是什么？", "现在几点？", "唱首歌。",
     "讲个笑话。", "为什么天空是蓝色的？", "怎么做米饭？", "什么是爱？", "写一篇文章。", "今天吃什么？", "地球多少岁了？", "北京在哪里？"],
)
UNKNOWN_ANSWER = (
    "I am a very small model and I do not know that. I can do arithmetic, count, sort and reverse lists, and answer "
    "questions about Kuiper.",
    "我是一个很小的模型，不知道这个。我会算术、数数、排序、反转列表，也能回答关于 Kuiper 的问题。",
)
