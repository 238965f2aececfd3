// Every word the page says, in both languages side by side.

export const LANGUAGES = { en: "English", zh: "中文" };

const TABLE = {
  "title": ["What the model looked at", "模型在看什么"],
  "views": ["Views", "视图"],
  "view.sentence": ["Sentence", "句子"],
  "view.map": ["Map", "热图"],
  "view.gallery": ["Gallery", "画廊"],
  "view.generation": ["Generation", "生成"],

  "settings": ["What is shown", "显示内容"],
  "language": ["Language", "语言"],
  "theme": ["Theme", "主题"],
  "theme.auto": ["Auto", "自动"],
  "theme.light": ["Light", "浅色"],
  "theme.dark": ["Dark", "深色"],
  "save": ["Save", "保存"],
  "save.svg": ["Save this view as SVG", "将此视图存为 SVG"],
  "save.png": ["Save this view as PNG", "将此视图存为 PNG"],
  "save.json": ["Save the data as JSON", "将数据存为 JSON"],
  "saved": ["{name} saved", "已保存 {name}"],

  "parameters": ["{count} parameters", "{count} 个参数"],
  "model.translator": ["translator", "翻译模型"],
  "model.gpt": ["language model", "语言模型"],
  "model.bert": ["masked model", "掩码模型"],
  "model.classifier": ["classifier", "分类模型"],
  "model.vit": ["picture model", "图像模型"],
  "source": ["Source", "原文"],
  "target": ["Output", "译文"],
  "read": ["Read so far", "已读"],
  "ablated": ["Switched off: {names}", "已关闭：{names}"],
  "unseen": ["Nobody looked at: {words}", "无人关注：{words}"],
  "unseen.token": ["nobody looked at it", "无人关注"],
  "special": ["control token", "控制符"],

  "kind": ["Attention", "注意力"],
  "kind.encoder": ["Encoder", "编码器"],
  "kind.decoder": ["Decoder", "解码器"],
  "kind.cross": ["Cross", "交叉"],
  "kind.attention": ["Attention", "注意力"],
  "kind.rollout": ["Rollout", "累积"],
  "kind.alignment": ["Alignment", "词对齐"],
  "about.encoder": ["Source looks at source", "原文看原文"],
  "about.decoder": ["Output looks back at what was read", "译文回看已读部分"],
  "about.cross": ["Output looks at source", "译文看原文"],
  "about.attention": ["Who looks at whom", "谁在看谁"],
  "about.rollout": ["What reaches the last layer, all layers multiplied", "各层相乘后到达最后一层的信息"],
  "about.alignment": ["Which word became which, from cross attention", "由交叉注意力得出的词对应关系"],

  "heads": ["Heads", "注意力头"],
  "heads.all": ["All", "全部"],
  "heads.several": ["Choose several", "多选"],
  "heads.grid": ["Layers and heads", "层与头"],
  "heads.chosen": ["{count} of {total}", "{count} / {total}"],
  "layer": ["Layer {layer}", "第 {layer} 层"],
  "layer.short": ["L{layer}", "L{layer}"],
  "head": ["Head {head}", "头 {head}"],
  "head.every": ["Head {head} of every layer", "每层的头 {head}"],
  "layer.every": ["Every head of layer {layer}", "第 {layer} 层的所有头"],
  "layer.head": ["Layer {layer}, head {head}", "第 {layer} 层，头 {head}"],
  "head.name": ["Its name, as --ablate and --prune take it", "它的名称，可用于 --ablate 与 --prune"],
  "head.gone": ["pruned", "已剪除"],
  "head.off": ["switched off", "已关闭"],
  "mix": ["Several heads together", "多个头合并"],
  "mix.mean": ["Mean", "平均"],
  "mix.max": ["Max", "最大"],
  "words": ["Merge pieces into words", "将子词合并为词"],
  "zoom": ["Zoom", "缩放"],
  "zoom.in": ["Zoom in", "放大"],
  "zoom.out": ["Zoom out", "缩小"],
  "zoom.fit": ["Fit", "适应"],

  "looks": ["looks", "在看"],
  "seen": ["is looked at", "被看"],
  "looks.at": ["“{token}” looks at", "“{token}” 在看"],
  "seen.by": ["“{token}” is looked at by", "看着 “{token}” 的有"],
  "looks.value": ["“{query}” looks at “{key}”: {value}", "“{query}” 看 “{key}”：{value}"],
  "hint.sentence": [
    "Point at a token, tap it or tab to it: its lines stay, the others fade.",
    "将指针移到词上，或点按、用 Tab 键选中：只保留它的连线。",
  ],
  "strongest.looks": ["Strongest", "最强"],
  "hint.map": [
    "Each row is a token that looks, each column one that is looked at. Point, or use the arrow keys.",
    "每一行是在看的词，每一列是被看的词。移动指针，或使用方向键。",
  ],
  "strongest": ["The {count} strongest lines are drawn.", "只画出最强的 {count} 条线。"],
  "map.label": ["Heat map: {title}", "热图：{title}"],
  "map.keys": [
    "Arrow keys move the crosshair, Home and End go to the ends of a row, Escape leaves.",
    "方向键移动十字线，Home 与 End 到行首行尾，Esc 离开。",
  ],
  "weight": ["weight", "权重"],
  "map.percent": ["numbers in %", "数字为百分比"],
  "all.heads": ["all {count} heads", "全部 {count} 个头"],
  "some.heads": ["{count} heads", "{count} 个头"],
  "mixed": ["{mix} of {heads}", "{heads}的{mix}"],

  "sort": ["Sort by", "排序"],
  "sort.position": ["Place in the model", "在模型中的位置"],
  "sort.down": ["Largest first", "从大到小"],
  "sort.up": ["Smallest first", "从小到大"],
  "open.map": ["Open {title} in the map", "在热图中打开{title}"],
  "measures": ["Measures", "度量"],
  "measure.entropy": ["Spread (entropy)", "分散度（熵）"],
  "measure.distance": ["Mean distance", "平均距离"],
  "measure.self": ["On itself", "看自己"],
  "measure.previous": ["On the one before", "看前一个"],
  "measure.next": ["On the one after", "看后一个"],
  "measure.near": ["On itself and its neighbours", "看自己及相邻"],
  "measure.first": ["On the first", "看第一个"],
  "measure.last": ["On the last", "看最后一个"],
  "measure.punctuation": ["On punctuation", "看标点"],
  "measure.diagonal": ["Diagonality", "对角程度"],
  "measure.peak": ["On the strongest", "看最强的一处"],
  "label.previous": ["looks one back", "看前一个词"],
  "label.next": ["looks one ahead", "看后一个词"],
  "label.self": ["looks at itself", "看自己"],
  "label.near": ["looks nearby", "看附近"],
  "label.first": ["looks at the beginning", "看句首"],
  "label.last": ["looks at the end", "看句尾"],
  "label.punctuation": ["looks at punctuation", "看标点"],
  "label.diagonal": ["follows word by word", "逐词对应"],
  "label.peak": ["looks at one place at a time", "每次只看一处"],
  "label.everywhere": ["looks everywhere", "看全部"],
  "label.none": ["no single habit", "没有单一习惯"],

  "confidence": ["How sure it was", "把握程度"],
  "confidence.sure": ["sure", "确定"],
  "confidence.unsure": ["in doubt", "犹豫"],
  "confidence.hint": ["Choose a token to see what else it could have been.", "选择一个词，看看还有哪些可能。"],
  "candidates": ["What it chose among", "候选词"],
  "candidates.step": ["Step {step}", "第 {step} 步"],
  "candidate.chosen": ["chosen", "选中"],
  "step.said": ["Step {step}: “{token}”, {value}", "第 {step} 步：“{token}”，{value}"],
  "hypotheses": ["What it ended with", "最终结果"],
  "hypothesis.score": ["score {score}", "得分 {score}"],
  "hypothesis.open": ["unfinished", "未完成"],
  "tree": ["The beams, kept and dropped", "保留与舍弃的束"],
  "tree.label": ["Beam tree", "束搜索树"],
  "tree.keys": [
    "Arrow keys move through the tree: left to the parent, right to the child, up and down within a step.",
    "用方向键在树中移动：左到父节点，右到子节点，上下在同一步内移动。",
  ],
  "tree.node": ["Step {step}: “{token}”, {value}, score {score}, {fate}", "第 {step} 步：“{token}”，{value}，得分 {score}，{fate}"],
  "fate.kept": ["kept", "保留"],
  "fate.dropped": ["dropped", "舍弃"],
  "fate.finished": ["finished", "完成"],
  "fate.winner": ["winner", "胜出"],
  "generation.none": ["Nothing was written for this page, so there are no choices to show.", "此页面没有生成过程，因此没有候选可看。"],
  "nothing": ["There is no attention in this file.", "此文件中没有注意力数据。"],
  "unreadable": ["This page cannot show its data: {reason}", "此页面无法显示数据：{reason}"],
};

/** The language that fits the reader's browser. */
export function preferredLanguage() {
  return (navigator.language || "en").toLowerCase().startsWith("zh") ? "zh" : "en";
}

/** A phrase in one language, its gaps filled; a code without a phrase is shown as it is. */
export function phrase(language, key, values = {}) {
  const both = TABLE[key];
  const text = both ? both[language === "zh" ? 1 : 0] : key.slice(key.indexOf(".") + 1);
  return text.replace(/\{(\w+)\}/g, (gap, name) => (name in values ? String(values[name]) : gap));
}

/** A share as a person reads it: 83 %, 4.2 %, < 0.1 %. */
export function percent(language, share) {
  if (share > 0 && share < 0.001) return language === "zh" ? "<0.1%" : "<\u00a00.1\u00a0%";
  const digits = share < 0.0995 ? 1 : 0;
  const number = (100 * share).toFixed(share === 0 || share === 1 ? 0 : digits);
  return language === "zh" ? `${number}%` : `${number}\u00a0%`;
}

/** A large number with its thousands apart. */
export function grouped(language, number) {
  return new Intl.NumberFormat(language === "zh" ? "zh-CN" : "en").format(number);
}
