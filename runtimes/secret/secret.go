// Package secret resolves references to secrets in one worker, and restricts which references are allowed.
//
// Configuration names a secret. The operator who starts the worker sets which names are allowed, because a worker has its own
// credentials in the same environment. The package may import entities.
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

// Source resolves references. Safe for concurrent use.
type Source interface {
	// Resolve returns the value of a reference; a literal is its own value. An error names the missing source in words that follow
	// "… cannot be resolved from", and contains no secret.
	Resolve(ctx context.Context, v entities.Value) (string, error)
}

// Resolve reads the value of a reference from a source; without a source it is an error.
func Resolve(ctx context.Context, source Source, name string, v entities.Value) (string, error) {
	if !v.IsSecret() {
		return v.Literal, nil
	}
	if source == nil {
		source = Environment{}
	}
	text, err := source.Resolve(ctx, v)
	if err != nil {
		return "", fmt.Errorf("%s cannot be resolved from %w", name, err)
	}
	return text, nil
}

// Environment is the worker's own environment, restricted to the allowed names. The zero value allows nothing.
type Environment struct {
	Allowed []string // NAME, or PREFIX*
	// Lookup is os.LookupEnv if nil.
	Lookup func(name string) (string, bool)
}

var patternRE = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]*\*?|\*)$`)

// workerVariables are the variables that a worker and its tools read themselves: a wider pattern does not match them.
var workerVariables = []string{"TEMPORAL_*", "CONVERGE_*", "AWS_*", "AZURE_*", "GOOGLE_*", "GCP_*", "KUBECONFIG", "SOPS_*", "VAULT_*"}

// ParseAllowed reads a list in the form of flags and CONVERGE_ALLOW_ENV: names, and prefixes with * at the end, separated by commas.
func ParseAllowed(list ...string) ([]string, error) {
	var all []string
	for _, name := range strings.Split(strings.Join(list, ","), ",") {
		name = strings.TrimSpace(name)
		switch {
		case name == "":
		case !patternRE.MatchString(name):
			return nil, fmt.Errorf("invalid name %q; expected the name of an environment variable, or a prefix with * at the end", name)
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
		return "", fmt.Errorf("%s, but this worker reads only its environment", v.Reference())
	case name == "":
		return v.Literal, nil
	}
	if !slices.ContainsFunc(e.Allowed, func(pattern string) bool { return allows(pattern, name) }) {
		return "", fmt.Errorf("the worker's environment variable %s, which this worker does not allow; to allow it, start the worker with --allow-env %s", name, name)
	}
	lookup := e.Lookup
	if lookup == nil {
		lookup = os.LookupEnv
	}
	text, ok := lookup(name)
	if !ok {
		return "", fmt.Errorf("the worker's environment variable %s, which is not set", name)
	}
	return text, nil
}

// allows reports whether a pattern matches a name. Only a pattern that is as narrow as the worker's own variables matches one of
// them.
func allows(pattern, name string) bool {
	if !entities.MatchesName(pattern, name) {
		return false
	}
	for _, reserved := range workerVariables {
		if entities.MatchesName(reserved, name) && !entities.MatchesName(reserved, strings.TrimSuffix(pattern, "*")) {
			return false
		}
	}
	return true
}
