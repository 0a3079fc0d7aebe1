package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/cpuguy83/go-md2man/v2/md2man"
)

var (
	commentRE = regexp.MustCompile(`(?s)<!--.*?-->\n*`)
	linkRE    = regexp.MustCompile(`\[([^\]]+)\]\([^)]+\)`)
	fenceRE   = regexp.MustCompile("(?m)^```text$")
)

// manPages are the pages of the commands in docs/cli, which come from the help of the program: converge-admin.1 of admin.md, and converge.1
// of README.md. Links have no target in a man page, so that their text stays alone.
func manPages(dir string, at time.Time) (pages []file, err error) {
	sources, err := filepath.Glob(filepath.Join(dir, "*.md"))
	if err != nil {
		return nil, err
	}
	if len(sources) == 0 {
		return nil, fmt.Errorf("no page in %s", dir)
	}
	for _, path := range sources {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		name := "converge"
		if base := strings.TrimSuffix(filepath.Base(path), ".md"); base != "README" {
			name += "-" + base
		}
		plain := fenceRE.ReplaceAllString(linkRE.ReplaceAllString(commentRE.ReplaceAllString(string(text), ""), "$1"), "```")
		head := fmt.Sprintf("%% %s 1 %q \"Converge\" \"Converge Manual\"\n\n", strings.ToUpper(name), at.Format("January 2006"))
		pages = append(pages, file{"man/man1/" + name + ".1", 0o644, md2man.Render([]byte(head + plain))})
	}
	return pages, nil
}
