// Translates with Bergamot's translator, compiled to WebAssembly: node bergamot.cjs WORKER_FOLDER JOB.json < lines
// The job has the files model, shortlist (or null) and vocabs, and config, the YAML of marian-decoder.
const fs = require('fs');
const path = require('path');

const [folder, job] = [process.argv[2], JSON.parse(fs.readFileSync(process.argv[3]))];
const GEMM = {
  int8_prepare_a: 'int8PrepareAFallback',
  int8_prepare_b: 'int8PrepareBFallback',
  int8_prepare_b_from_transposed: 'int8PrepareBFromTransposedFallback',
  int8_prepare_b_from_quantized_transposed: 'int8PrepareBFromQuantizedTransposedFallback',
  int8_prepare_bias: 'int8PrepareBiasFallback',
  int8_multiply_and_add_bias: 'int8MultiplyAndAddBiasFallback',
  int8_select_columns_of_b: 'int8SelectColumnsOfBFallback',
};

function memory(file, alignment) {
  const bytes = file ? fs.readFileSync(file) : Buffer.alloc(0);
  const held = new Module.AlignedMemory(bytes.length, alignment);
  held.getByteArrayView().set(new Int8Array(bytes.buffer, bytes.byteOffset, bytes.length));
  return held;
}

function translate() {
  const vocabularies = new Module.AlignedMemoryList();
  job.vocabs.forEach((file) => vocabularies.push_back(memory(file, 64)));
  const [model, shortlist] = [memory(job.model, 256), memory(job.shortlist, 64)];
  const translator = new Module.TranslationModel(job.config, model, shortlist, vocabularies, null);
  const service = new Module.BlockingService({cacheSize: 0});
  for (const line of fs.readFileSync(0, 'utf-8').split('\n')) {
    const [texts, options] = [new Module.VectorString(), new Module.VectorResponseOptions()];
    texts.push_back(line);
    options.push_back({alignment: false, html: false, qualityScores: false});
    console.log(service.translate(translator, texts, options).get(0).getTranslatedText());
  }
}

global.Module = {
  print: console.error,
  printErr: console.error,
  instantiateWasm(imports, accept) {
    const call = (name) => (...values) => Module.asm[name](...values);
    const gemm = Object.fromEntries(Object.entries(GEMM).map(([key, name]) => [key, call(name)]));
    const code = fs.readFileSync(path.join(folder, 'bergamot-translator-worker.wasm'));
    WebAssembly.instantiate(code, {...imports, wasm_gemm: gemm}).then(({instance}) => accept(instance));
    return {};
  },
  onRuntimeInitialized: translate,
};
(0, eval)(fs.readFileSync(path.join(folder, 'bergamot-translator-worker.js'), 'utf-8'));
