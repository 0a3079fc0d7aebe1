package store

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"path"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
)

// This file finds references in text. It does not know fields: every string that looks like a digest is a digest, and the name of a
// version or the number of an incarnation counts in any place. So it finds references that a later version writes in other fields. It
// may keep too much, but never too little.

// maxPackedDepth bounds how deeply packed texts are nested.
const maxPackedDepth = 6

// maxWordLength bounds the length of names in a text: the longest full version.
const maxWordLength = 512

// words calls take for each word of a text. In JSON these are each string and number, including those of packed texts, and their parts.
// In other text they are all strings that have the form of a name.
func words(text []byte, take func(string)) { wordsIn(text, 0, take) }

func wordsIn(text []byte, depth int, take func(string)) {
	if plain, packed := unpacked(text); packed && depth < maxPackedDepth {
		wordsIn(plain, depth+1, take)
		return
	}
	for in := json.NewDecoder(bytes.NewReader(text)); ; {
		in.UseNumber()
		token, err := in.Token()
		if err == io.EOF {
			return
		}
		if err != nil {
			textNames(string(text), take) // it is not JSON
			return
		}
		switch v := token.(type) {
		case string:
			wordsOf(v, depth, take)
		case json.Number:
			take(v.String())
		}
	}
}

func wordsOf(s string, depth int, take func(string)) {
	if len(s) <= maxWordLength {
		take(s)
	}
	if depth < maxPackedDepth && len(s) > 20 && len(s)%4 == 0 {
		if raw, err := base64.StdEncoding.DecodeString(s); err == nil && (isPacked(raw) || json.Valid(raw)) {
			wordsIn(raw, depth+1, take)
		}
	}
	textNames(s, take)
}

func isPacked(data []byte) bool { return bytes.HasPrefix(data, []byte{0x1f, 0x8b}) }

// unpacked returns the content of a packed text. If the packed text is truncated, it returns the beginning.
func unpacked(text []byte) (plain []byte, packed bool) {
	if !isPacked(text) {
		return nil, false
	}
	r, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		return nil, false
	}
	plain, _ = io.ReadAll(io.LimitReader(r, maxUnpacked))
	return plain, true
}

const maxUnpacked = 1 << 30

// maxJoinedParts bounds how many parts of a word are joined in all combinations. A longer word yields its parts and its prefixes.
const maxJoinedParts = 8

// textNames calls take for the words of a text that is not JSON: each sequence of characters that names may contain, and each part of it
// between two separators. For v7-i42 it also takes v7, i42 and 42.
func textNames(text string, take func(string)) {
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return !isNameRune(r) }) {
		take(word)
		parts := strings.FieldsFunc(word, func(r rune) bool { return strings.ContainsRune("-+:@~=_", r) })
		for _, part := range parts {
			take(part)
			take(strings.TrimPrefix(part, "i"))
			take(strings.TrimRight(part, "."))
		}
		take(strings.TrimRight(word, ".:"))
		joinParts(word, len(parts), take)
	}
}

func joinParts(word string, parts int, take func(string)) {
	if parts < 2 {
		return
	}
	var cuts []int
	for at, r := range word {
		if strings.ContainsRune("-+:@~=_", r) {
			cuts = append(cuts, at)
		}
	}
	for _, end := range cuts {
		take(word[:end])
	}
	for n, begin := range cuts {
		take(word[begin+1:])
		for _, end := range cuts[n+1 : min(len(cuts), n+1+maxJoinedParts)] {
			take(word[begin+1 : end])
		}
	}
}

func isNameRune(r rune) bool {
	return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune("._+-:@~=", r)
}

// digestsIn returns the digests that content refers to. A leaf refers to none.
func digestsIn(key string, data []byte) (found []string) {
	if isLeaf(key) {
		return nil
	}
	words(data, func(word string) {
		if isDigest(word) {
			found = append(found, word)
		}
	})
	slices.Sort(found)
	return slices.Compact(found)
}

// isLeaf reports whether content refers to nothing. Such content may be encrypted.
func isLeaf(key string) bool {
	return strings.HasPrefix(key, "bundles/") || strings.HasPrefix(key, commits)
}

// traceConcurrency is how many entries are read concurrently while references are followed.
const traceConcurrency = 16

// trace visits digests and everything that visited content refers to, each once.
func trace(ctx context.Context, from []string, visit func(context.Context, string) ([]string, error)) error {
	seen := map[string]bool{}
	for wave := unseen(seen, from); len(wave) > 0; {
		named := make([][]string, len(wave))
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(traceConcurrency)
		for n, digest := range wave {
			g.Go(func() (err error) {
				named[n], err = visit(ctx, digest)
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
		wave = unseen(seen, slices.Concat(named...))
	}
	return nil
}

// unseen returns the digests that were not seen before, and marks them as seen.
func unseen(seen map[string]bool, digests []string) (out []string) {
	for _, digest := range digests {
		if !seen[digest] {
			seen[digest] = true
			out = append(out, digest)
		}
	}
	return out
}

// contentsOf groups entries of content by digest.
func contentsOf(all []entry) map[string][]entry {
	found := map[string][]entry{}
	for _, e := range all {
		if key := strings.TrimPrefix(e.key, unreferenced); isContent(key) {
			found[path.Base(key)] = append(found[path.Base(key)], e)
		}
	}
	return found
}

// isContent reports whether a key contains the digest of its content.
func isContent(key string) bool {
	folder, rest, _ := strings.Cut(key, "/")
	switch {
	case folders[folder+"/"] == byDigest:
		return isDigest(rest)
	case folder == "runtimes":
		return strings.Count(rest, "/") == 1 && isDigest(path.Base(rest))
	}
	return false
}
