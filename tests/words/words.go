// Package words counts the words of a private dialect in comments and documentation. Its test holds their rate to that of projects which
// a reader of Go knows. It imports the standard library alone.
package words

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Dialect are the words and phrases that have a plainer form in the field's own English (CONTRIBUTING.md, Words).
var Dialect = []string{
	"told", "heard", "asked", "looked", "stands", "whoever", "whatever", "wherever", "nobody", "anybody", "somebody", "anew", "beside",
	"by itself", "by then", "by now", "all the same", "what is", "what was", "likewise", "once more", "goes on", "taken for", "let go",
}

var (
	dialect = regexp.MustCompile(`(?i)\b(` + strings.ReplaceAll(strings.Join(Dialect, "|"), " ", `\s+`) + `)\b`)
	word    = regexp.MustCompile(`[A-Za-z][A-Za-z'-]*`)
)

// Count is how many words a text has, and how many of them are dialect.
type Count struct {
	Words, Dialect int
	Places         []string // FILE:LINE: PHRASE
}

// PerThousand is the rate of dialect.
func (c Count) PerThousand() float64 { return 1000 * float64(c.Dialect) / float64(max(c.Words, 1)) }

func (c *Count) add(path string, line int, text string) {
	c.Words += len(word.FindAllString(text, -1))
	for _, at := range dialect.FindAllStringIndex(text, -1) {
		c.Dialect++
		c.Places = append(c.Places, fmt.Sprintf("%s:%d: %s", path, line+strings.Count(text[:at[0]], "\n"), text[at[0]:at[1]]))
	}
}

// Comments counts the words in the comments of the Go files below a directory, without tests and generated files.
func Comments(dir string) (c Count, err error) {
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, group := range file.Comments {
			c.add(path, set.Position(group.Pos()).Line, group.Text())
		}
		return nil
	})
	return c, err
}

var code = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`")

// Pages counts the words in the Markdown files below a directory, without what is quoted as code.
func Pages(dir string) (c Count, err error) {
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".md") {
			return err
		}
		data, err := os.ReadFile(path)
		if err == nil {
			c.add(path, 1, code.ReplaceAllStringFunc(string(data), func(s string) string { return strings.Repeat("\n", strings.Count(s, "\n")) }))
		}
		return err
	})
	return c, err
}
