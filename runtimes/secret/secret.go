// Package secret is what references to secrets stand for in one worker, and which of them it lets stand for anything.
//
// Configuration names a secret, and whoever starts the worker says which names may be asked for: a worker holds
// credentials of its own in the same environment. It may import entities.
package secret

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/converge-engine/converge/entities"
)

// Source finds what references stand for. Safe for concurrent use.
type Source interface {
	// Resolve returns what a value stands for: a literal is itself. An error says in words that follow "… is to come from"
	// what is not to be had, and holds no secret.
	Resolve(ctx context.Context, v entities.Value) (string, error)
}

// Resolve asks a source for the value of something; without a source nothing is to be had.
func Resolve(ctx context.Context, from Source, what string, v entities.Value) (string, error) {
	if !v.IsSecret() {
		return v.Literal, nil
	}
	if from == nil {
		from = Environment{}
	}
	text, err := from.Resolve(ctx, v)
	if err != nil {
		return "", fmt.Errorf("%s is to come from %w", what, err)
	}
	return text, nil
}

// Environment is the worker's own, as far as it is allowed. The zero value allows nothing.
type Environment struct {
	Allowed []string // NAME, or PREFIX*
	// Lookup is os.LookupEnv when nil.
	Lookup func(name string) (string, bool)
}

var patternRE = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]*\*?|\*)$`)

// own are the variables that a worker and the tools in it read themselves: a pattern that is wider does not mean them.
var own = []string{"TEMPORAL_*", "CONVERGE_*", "AWS_*", "AZURE_*", "GOOGLE_*", "GCP_*", "KUBECONFIG", "SOPS_*", "VAULT_*"}

// ParseAllowed reads a list as flags and CONVERGE_ALLOW_ENV have it: names and prefixes with * behind them, with commas
// between them.
func ParseAllowed(list ...string) ([]string, error) {
	var all []string
	for _, name := range strings.Split(strings.Join(list, ","), ",") {
		name = strings.TrimSpace(name)
		switch {
		case name == "":
		case !patternRE.MatchString(name):
			return nil, fmt.Errorf("%q is no name of an environment variable, nor the beginning of one with * behind it", name)
		default:
			all = append(all, name)
		}
	}
	return all, nil
}

// Resolve implements Source.
func (e Environment) Resolve(_ context.Context, v entities.Value) (string, error) {
	name := v.WorkerEnv
	switch {
	case v.IsSecret() && name == "":
		return "", fmt.Errorf("%s, and this worker reads its environment only", v.Reference())
	case name == "":
		return v.Literal, nil
	}
	if !slices.ContainsFunc(e.Allowed, func(pattern string) bool { return allows(pattern, name) }) {
		return "", fmt.Errorf("the worker's environment variable %s, which this worker lets nobody have; start it with --allow-env %s if it should", name, name)
	}
	lookup := e.Lookup
	if lookup == nil {
		lookup = os.LookupEnv
	}
	text, ok := lookup(name)
	if !ok {
		return "", fmt.Errorf("the worker's environment variable %s, which is not set there", name)
	}
	return text, nil
}

// allows tells whether a pattern means a name. What is the worker's own is meant only by a pattern as narrow as that.
func allows(pattern, name string) bool {
	if !entities.MatchesName(pattern, name) {
		return false
	}
	for _, ours := range own {
		if entities.MatchesName(ours, name) && !entities.MatchesName(ours, strings.TrimSuffix(pattern, "*")) {
			return false
		}
	}
	return true
}
