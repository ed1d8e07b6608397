#!/bin/sh
# Makes the corpora that fuzzing starts from: what clients say in the transcripts of each dialect.
# A second copy of each has whims for the engine: the byte 0xFF, then any bytes.
set -eu
cd "$(dirname "$0")"
# The sessions that the harness of the loaf door gives out first.
FIRST=374708ff-f771-4dd5-979e-c875d56cd228
SECOND=7c3ccd10-bb7e-437b-86d3-7926ae627426
# The target, and the dialect whose transcripts it begins with.
for pair in exec:exec lines:exec synaps:synaps supex:supex supr:supr loaf:loaf; do
    target=${pair%:*}
    mkdir -p "corpus/$target"
    for transcript in ../tests/transcripts/"${pair#*:}"/*.txt; do
        seed=corpus/$target/$(basename "$transcript" .txt)
        sed -n 's/^> //p' "$transcript" | sed 's/b64"[^"]*"/"aGVsbG8K"/g; s/{tmp}/\/tmp/g' \
            | sed "s/{s}/$FIRST/g; s/{s2}/$SECOND/g" > "$seed"
        { cat "$seed"; printf '\377'; head -c 96 "$transcript"; } > "$seed-moody"
    done
done
