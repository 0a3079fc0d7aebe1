// Command run runs the tests, says how far it is, and gives a test that failed a second try by itself.
//
//	go run ./tests/run [-long] [flags and packages of go test]
//
// Without packages it runs all of them. A test that fails and then passes by itself is printed as FLAKY, with both
// outputs, and does not make the run fail; policy.go says which tests get no second try. Long tests run in their short
// form (go test -short); with -long only those tests run, in full.
//
// Exit codes: 0 when every test passed in the end, 1 when one failed, 2 when the tests could not be run. It imports the
// standard library alone, so that it starts at once.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ok, err := suite{flaky: flakyFile, report: ".cache/flaky-report.txt", out: os.Stdout}.run(ctx, os.Args[1:])
	switch {
	case err != nil:
		fmt.Fprintf(os.Stderr, "tests: %v\n", err)
		os.Exit(2)
	case !ok:
		os.Exit(1)
	}
}

// flakyFile names the tests that are known to fail now and then.
const flakyFile = "tests/flaky.txt"

// suite is what a run reads and writes beside the tests.
type suite struct {
	flaky  string // names the tests that are known to fail now and then
	report string // FLAKY reports are appended to it, for whoever started several runs; it is not committed
	out    io.Writer
}

// run runs the tests that the arguments name, and says whether each passed in the end.
func (s suite) run(ctx context.Context, args []string) (bool, error) {
	o, err := parse(args)
	if err != nil {
		return false, err
	}
	known, err := readFlaky(s.flaky)
	if err != nil {
		return false, err
	}
	wanted, err := o.list(ctx)
	if err != nil {
		return false, err
	}
	first, err := goTest(ctx, o, wanted, newProgress(s.out, len(wanted)))
	if err != nil {
		return false, err
	}
	failures := first.failures()
	decideSecondTries(failures, known)
	if err := s.secondTries(ctx, o, failures); err != nil {
		return false, err
	}
	report(s.out, first, failures)
	if flaky := flakyText(failures); flaky != "" {
		fmt.Fprint(s.out, flaky)
		if err := appendTo(s.report, flaky); err != nil {
			return false, err
		}
	}
	return summary(s.out, first, failures), nil
}

// secondTries runs the failures that may have one again, package by package, and one test at a time.
func (s suite) secondTries(ctx context.Context, o options, failures []failure) error {
	for _, pkg := range packagesOf(failures) {
		again := testsIn(failures, pkg)
		if len(again) == 0 {
			continue
		}
		fmt.Fprintf(s.out, "second try, by itself: %s %s\n", short(pkg), strings.Join(again, " "))
		second, err := goTest(ctx, o, []target{{pkg: pkg, tests: again, alone: true}}, newProgress(s.out, 1))
		if err != nil {
			return err
		}
		for i := range failures {
			if f := &failures[i]; f.pkg == pkg && f.noSecondTry == "" {
				f.second = second.of(pkg, f.test)
				f.passedThen = f.second.outcome == passed && !second.failedOutside(pkg)
			}
		}
	}
	return nil
}

// options are what the command line says.
type options struct {
	dir      string   // of the module; "" is this one
	long     bool     // run the long form of the tests that have one, and nothing else
	flags    []string // of go test
	packages []string
}

func parse(args []string) (options, error) {
	var o options
	for i := 0; i < len(args); i++ {
		switch arg := args[i]; {
		case arg == "-C":
			if i+1 == len(args) {
				return o, errors.New("-C: expected the directory of a module")
			}
			i++
			o.dir = args[i]
		case arg == "-long":
			o.long = true
		case arg == "-h", arg == "-help", arg == "--help":
			return o, errors.New("usage: go run ./tests/run [-C DIR] [-long] [FLAG=VALUE of go test ...] [PACKAGE ...]")
		case arg == "-run", arg == "-skip", arg == "-timeout", arg == "-parallel", arg == "-p", arg == "-tags":
			return o, fmt.Errorf("%s: write it as %s=VALUE", arg, arg)
		case strings.HasPrefix(arg, "-"):
			o.flags = append(o.flags, arg)
		default:
			o.packages = append(o.packages, arg)
		}
	}
	if len(o.packages) == 0 {
		o.packages = []string{"./..."}
	}
	return o, nil
}
