package config

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
)

var (
	yamlLine   = regexp.MustCompile(`^line (\d+): `)
	yamlAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)
	// The parser's own complaints, as opposed to its scanner's, name the line before.
	lineBefore = regexp.MustCompile(`^did not find expected (<|node|'|key)|^found (undefined tag|duplicate|incompatible)`)
)

// Syntax words the YAML parser's error and takes the place from it as far as it says one.
func (l *Reader) Syntax(name string, source []byte, err error) {
	text, line, column := strings.TrimPrefix(err.Error(), "yaml: "), 1, 1
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		line, _ = strconv.Atoi(m[1])
		text = strings.TrimPrefix(text, m[0])
		if lineBefore.MatchString(text) {
			line++
		}
	}
	expected := ""
	if m := yamlAnchor.FindStringSubmatch(text); m != nil {
		line, column = placeOf(source, "*"+m[1])
		expected = "an anchor &" + m[1] + " earlier in the same document"
	}
	l.fail(name, line, column, Fault{Code: "syntax", Message: "this is no YAML: " + text, Expected: expected})
}

// placeOf is where a word first stands.
func placeOf(source []byte, word string) (line, column int) {
	before, _, _ := bytes.Cut(source, []byte(word))
	return bytes.Count(before, []byte("\n")) + 1, len(before) - bytes.LastIndexByte(before, '\n')
}
