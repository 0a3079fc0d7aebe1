package loop_test

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"
)

// usual is what rapid checks where nobody asks for another number.
const usual = 100

// The same interleavings are played each time, so that a change is refused for what it does and not for what nobody had met yet.
// New ones are met by `make fuzz`, or with -rapid.seed or -rapid.checks. What fails there becomes a story.
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

// many tells whether more interleavings are asked for than a change is tested with.
func many() bool {
	n, _ := strconv.Atoi(flag.Lookup("rapid.checks").Value.String())
	return n > usual
}
