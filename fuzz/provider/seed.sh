#!/bin/sh
# Makes the corpus that fuzzing starts from: recorded answers of models. The first byte chooses the kind of provider, the
# second one the sizes of chunks.
set -eu
cd "$(dirname "$0")"
mkdir -p corpus/answers
number=0
for form in chat responses anthropic gemini chat ollama; do
    { printf "\\$(printf %03o $number)\\007"; cat ../../crates/model/tests/recorded/$form.txt; } > corpus/answers/$number-$form
    number=$((number + 1))
done
