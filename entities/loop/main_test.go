package loop_test

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"
)

// defaultChecks is the default number of checks of rapid.
const defaultChecks = 100

// The same interleavings run each time, so a change fails for its own effect and not for an interleaving that was never tested before.
// `make fuzz`, -rapid.seed or -rapid.checks run new ones. A failure there becomes a story.
func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) {
		given = given || f.Name == "rapid.seed" || f.Name == "rapid.checks" || f.Name == "rapid.failfile"
	})
	if !given {
		if err := flag.Set("rapid.seed", "13"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	}
	os.Exit(m.Run())
}

// moreThanDefault reports whether more interleavings are requested than the default.
func moreThanDefault() bool {
	n, _ := strconv.Atoi(flag.Lookup("rapid.checks").Value.String())
	return n > defaultChecks
}
