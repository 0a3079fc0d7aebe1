// Command rates prints how much dialect the comments and pages of folders have, and with -v where.
//
//	go run ./tests/words/rates [-v] [DIR ...]
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/converge-engine/converge/tests/words"
)

func main() {
	verbose := flag.Bool("v", false, "print each place")
	flag.Parse()
	dirs := flag.Args()
	if len(dirs) == 0 {
		dirs = []string{"activities", "client", "cmd", "entities", "intent", "runtimes", "worker", "workflows", "docs"}
	}
	for _, dir := range dirs {
		for what, count := range map[string]func(string) (words.Count, error){"comments": words.Comments, "pages": words.Pages} {
			c, err := count(dir)
			if err != nil {
				fmt.Fprintf(os.Stderr, "rates: %v\n", err)
				os.Exit(1)
			}
			if c.Words == 0 {
				continue
			}
			fmt.Printf("%-30s %-8s %6d words, %4d of the dialect, %4.1f of 1,000\n", dir, what, c.Words, c.Dialect, c.PerThousand())
			if *verbose {
				fmt.Println(strings.Join(c.Places, "\n"))
			}
		}
	}
}
