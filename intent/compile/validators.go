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

// refusal is the code of a problem that a validator reports.
const refusal = "refused-by-validator"

// Bounds of the output of a validator.
const (
	maxRefusals = 50
	maxRefusal  = 300 // bytes per line
)

// placed matches a line that starts with a position.
var placed = regexp.MustCompile(`^([^:\s][^:]*):(\d+)(?::(\d+))?:\s*(.+)$`)

// validate runs all validators of the application on the compiled result.
func (l *Loaded) validate(compiled *Compiled) (problems strict.Problems) {
	app := l.Application
	for i, validator := range app.Spec.Validators {
		at := strict.Index("validators", i) + ".command"
		ran, fault := l.Perform(at, validator, compiled.Incarnation.Bytes())
		if fault != nil {
			problems = append(problems, app.Problem(at, *fault))
		} else if ran.ExitCode != 0 {
			problems = append(problems, l.refused(at, validator, ran)...)
		}
	}
	return problems
}

// refused returns the problems in the output of a validator. Lines that name a file refer to that file, other lines to the whole
// configuration.
func (l *Loaded) refused(at string, validator config.ConfigurationCommand, ran config.Ran) (problems strict.Problems) {
	for line := range strings.Lines(string(ran.Stdout) + "\n" + string(ran.Stderr)) {
		line = strings.TrimSpace(strings.ToValidUTF8(line[:min(len(line), maxRefusal)], "")) // longer lines are truncated
		if line == "" || len(problems) == maxRefusals {
			continue
		}
		p := l.Application.Problem(at, strict.Fault{Code: refusal, Message: line})
		if m := placed.FindStringSubmatch(line); m != nil && slices.Contains(l.Files, m[1]) {
			p = strict.Problem{File: m[1], Line: number(m[2]), Column: number(m[3]), Fault: strict.Fault{Code: refusal, Message: m[4]}}
		}
		problems = append(problems, p)
	}
	if len(problems) == 0 {
		problems = strict.Problems{l.Application.Problem(at, strict.Fault{Code: refusal, Message: fmt.Sprintf("%s exited %d", validator.Command[0], ran.ExitCode)})}
	}
	return problems
}

func number(text string) int {
	n, _ := strconv.Atoi(text)
	return max(n, 1)
}
