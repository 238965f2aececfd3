// Every word that the live page says beside those of the view, in both languages side by side.

const TABLE = {
  "title": ["Try a model and look inside", "试用模型，看看内部"],
  "model": ["Model", "模型"],
  "text.translator": ["Text", "原文"],
  "text.gpt": ["Beginning", "开头"],
  "text.classifier": ["Text", "文本"],
  "text.bert": ["Text", "文本"],
  "hint.translator": ["Type or paste a text", "输入或粘贴文本"],
  "hint.gpt": ["Type the beginning of a text", "输入一段文字的开头"],
  "hint.classifier": ["Type or paste a text", "输入或粘贴文本"],
  "hint.bert": ["Type a text with gaps: to be or not to [MASK]", "输入带空缺的文本：to be or not to [MASK]"],
  "made.translator": ["Translation", "译文"],
  "made.gpt": ["Continuation", "续写"],
  "made.classifier": ["Labels", "标签"],
  "made.bert": ["Filled in", "补全"],
  "count": ["{count} of {most} characters", "{count} / {most} 字符"],
  "continue": ["Continue", "续写"],
  "stop": ["Stop", "停止"],
  "length": ["Tokens", "词元数"],
  "temperature": ["Temperature", "温度"],
  "sentences": ["Sentence on show", "显示的句子"],
  "sentence": ["Sentence {number}", "第 {number} 句"],
  "took": ["{seconds} s", "{seconds} 秒"],
  "busy": ["The server is busy, trying again …", "服务器繁忙，正在重试……"],
  "failed": ["The server does not answer. Is it still running?", "服务器没有响应，它还在运行吗？"],
  "looking": ["Looking inside …", "正在查看内部……"],
  "attention.none": ["This model cannot be looked into here.", "此模型无法在此查看内部。"],
  "attention.hint": ["What every head looks at appears here as soon as there is a text.", "输入文本后，这里会显示每个注意力头在看什么。"],
  "switch.off": ["Switch off and see what changes", "关闭所选，看看变化"],
  "switch.on": ["Switch on again", "重新打开"],
  "switch.all": ["Switch all on", "全部打开"],
  "without": ["Without {count} heads", "关闭 {count} 个头之后"],
  "without.one": ["Without {name}", "关闭 {name} 之后"],
  "with": ["With all heads", "全部打开时"],
  "same": ["nothing changes", "没有变化"],
  "loss": ["loss {loss}", "损失 {loss}"],
  "documentation": ["API", "接口文档"],
  "nothing": ["No model is served.", "没有可用的模型。"],
};

/** A phrase in one language, its gaps filled. */
export function words(language, key, values = {}) {
  const both = TABLE[key];
  const text = both ? both[language === "zh" ? 1 : 0] : key;
  return text.replace(/\{(\w+)\}/g, (gap, name) => (name in values ? String(values[name]) : gap));
}
