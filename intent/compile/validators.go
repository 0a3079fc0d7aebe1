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

// refusal is the code of what a validator says.
const refusal = "refused-by-validator"

// Bounds of what a validator says.
const (
	maxRefusals = 50
	maxRefusal  = 300 // bytes of each
)

// placed is a line that says where something is wrong.
var placed = regexp.MustCompile(`^([^:\s][^:]*):(\d+)(?::(\d+))?:\s*(.+)$`)

// validate asks the validators of the application, all of them, about what was compiled.
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

// refused are the lines of a validator: those that name a file are about that, and the others about all.
func (l *Loaded) refused(at string, validator config.ConfigurationCommand, ran config.Ran) (problems strict.Problems) {
	for line := range strings.Lines(string(ran.Stdout) + "\n" + string(ran.Stderr)) {
		line = strings.TrimSpace(strings.ToValidUTF8(line[:min(len(line), maxRefusal)], "")) // a longer one is cut
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
