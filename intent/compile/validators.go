package compile

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// codeRefused is the code of a problem that a validator reports.
const codeRefused = "refused-by-validator"

// Bounds of the output of a validator.
const (
	maxValidatorProblems = 50
	maxValidatorLine     = 300 // bytes per line
)

// positionedLine matches a line that starts with a position.
var positionedLine = regexp.MustCompile(`^([^:\s][^:]*):(\d+)(?::(\d+))?:\s*(.+)$`)

// validate runs all validators of the application on the compiled result.
func (l *Loaded) validate(compiled *Compiled) (problems strict.Problems) {
	app := l.Application
	for i, validator := range app.Spec.Validators {
		at := strict.Index("validators", i) + ".command"
		result, fault := l.RunCommand(at, validator, compiled.Incarnation.Bytes())
		if fault != nil {
			problems = append(problems, app.Problem(at, *fault))
		} else if result.ExitCode != 0 {
			problems = append(problems, l.validatorProblems(at, validator, result)...)
		}
	}
	return problems
}

// validatorProblems returns the problems in the output of a validator. Lines that name a file refer to that file, other lines to the whole
// configuration.
func (l *Loaded) validatorProblems(at string, validator config.ConfigurationCommand, result config.RunResult) (problems strict.Problems) {
	for line := range strings.Lines(string(result.Stdout) + "\n" + string(result.Stderr)) {
		line = strings.TrimSpace(strings.ToValidUTF8(line[:min(len(line), maxValidatorLine)], "")) // longer lines are truncated
		if line == "" || len(problems) == maxValidatorProblems {
			continue
		}
		p := l.Application.Problem(at, strict.Fault{Code: codeRefused, Message: line})
		if m := positionedLine.FindStringSubmatch(line); m != nil && slices.Contains(l.Files, m[1]) {
			p = strict.Problem{File: m[1], Line: parsePositive(m[2]), Column: parsePositive(m[3]), Fault: strict.Fault{Code: codeRefused, Message: m[4]}}
		}
		problems = append(problems, p)
	}
	if len(problems) == 0 {
		problems = strict.Problems{l.Application.Problem(at, strict.Fault{Code: codeRefused, Message: fmt.Sprintf("%s exited %d", validator.Command[0], result.ExitCode)})}
	}
	return problems
}

func parsePositive(text string) int {
	n, _ := strconv.Atoi(text)
	return max(n, 1)
}
