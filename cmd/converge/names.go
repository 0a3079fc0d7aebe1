package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/converge-engine/converge/client/publish"
	"github.com/converge-engine/converge/entities/protocol"
)

// serviceName addresses a service.
type serviceName struct{ application, service string }

func (n serviceName) String() string { return n.application + "/" + n.service }
func (n serviceName) id() string     { return protocol.ServiceID(n.application, n.service) }

var namePattern = regexp.MustCompile(`^[a-z]([a-z0-9-]*[a-z0-9])?$`)

func isName(name string) bool { return len(name) <= 63 && namePattern.MatchString(name) }

// checkName refuses an invalid service name before the server is queried.
func checkName(kind, name string) error {
	if !isName(name) {
		return fmt.Errorf("%q is not a valid name of %s; expected lower-case letters, digits and hyphens", name, kind)
	}
	return nil
}

// applicationHere is the application that the working directory is part of, or "".
func (f *Factory) applicationHere() string {
	dir, err := f.WorkDir()
	if err != nil {
		return ""
	}
	name, _ := publish.FindApplication(dir)
	return name
}

// parseService reads SVC. The application is optional inside a directory that defines it.
func (f *Factory) parseService(arg string) (serviceName, error) {
	app, svc, ok := strings.Cut(arg, "/")
	if !ok {
		svc = arg
		if app = f.applicationHere(); app == "" {
			return serviceName{}, fmt.Errorf("%q: expected application/service; the application may be omitted only inside a directory that defines it", arg)
		}
	}
	n := serviceName{app, svc}
	return n, errors.Join(checkName("an application", app), checkName("a service", svc))
}

// target is the argument of a verb for SVC or APP.
type target struct {
	serviceName
	all bool // every service of the application
	// applicationOmitted means that the user left out the application, so it is the one of the working directory.
	applicationOmitted bool
}

// parseTarget reads SVC or APP. A word with a slash is a service. Inside a directory that defines an application, a word without a
// slash is that application or one of its services; elsewhere it is an application.
func (f *Factory) parseTarget(arg string) (target, error) {
	if strings.HasPrefix(arg, "runtime/") {
		return target{}, fmt.Errorf("%s is a runtime; expected a service or an application; see: converge runtime --help", arg)
	}
	if strings.Contains(arg, "/") {
		n, err := f.parseService(arg)
		return target{serviceName: n}, err
	}
	if app := f.applicationHere(); app != "" && app != arg {
		n, err := f.parseService(arg)
		return target{serviceName: n, applicationOmitted: true}, err
	}
	return target{serviceName: serviceName{application: arg}, all: true}, checkName("an application", arg)
}

// resolveTarget returns another application than that of the working directory, if the word names one and is no service here.
func (f *Factory) resolveTarget(ctx context.Context, t target) (target, error) {
	if !t.applicationOmitted {
		return t, nil
	}
	api, err := f.client(ctx)
	if err != nil {
		return t, err
	}
	all, err := api.Services(ctx, "")
	if err != nil || slices.Contains(all, t.serviceName) {
		return t, err
	}
	known := applications(all)
	if !slices.Contains(known, t.service) {
		if known, err = api.Applications(ctx); err != nil || !slices.Contains(known, t.service) { // all of its services may be unmanaged
			return t, err
		}
	}
	return target{serviceName: serviceName{application: t.service}, all: true}, nil
}

// notFoundError explains that a service does not exist, and suggests similar names. A verb never starts a service that is not declared.
func (f *Factory) notFoundError(ctx context.Context, n serviceName) error {
	api, err := f.client(ctx)
	if err != nil {
		return err
	}
	if unmanaged, err := f.unmanagedStatuses(ctx, target{serviceName: n}); err == nil && len(unmanaged) > 0 {
		return fmt.Errorf("%s accepts no requests: %s", n, unmanaged[0].Headline)
	}
	all, err := api.Services(ctx, "")
	if err != nil {
		return fmt.Errorf("no service %s", n)
	}
	names := make([]string, len(all))
	for i, s := range all {
		names[i] = s.String()
	}
	return fmt.Errorf("no service %s%s", n, suggestion(n.String(), names))
}

// suggestion lists similar names, or all if they are few, or says how to declare a service.
func suggestion(name string, names []string) string {
	similar := closest(name, names)
	switch {
	case len(similar) == 1:
		return fmt.Sprintf("; did you mean %s?", similar[0])
	case len(similar) > 1:
		return "; did you mean one of " + strings.Join(similar, ", ") + "?"
	case len(names) == 0:
		return "; none is declared yet: converge config publish DIR"
	case len(names) == 1:
		return "; there is " + names[0]
	case len(names) <= 8:
		return "; there are " + strings.Join(names, ", ")
	}
	return "; converge status lists them all"
}

// closest returns at most five names whose distance is within a third of the length of the wrong name, nearest first. It also returns
// names with the same service in another application.
func closest(name string, names []string) []string {
	type candidate struct {
		name     string
		distance int
	}
	var found []candidate
	for _, n := range names {
		d := distance(name, n)
		if _, service, _ := strings.Cut(n, "/"); strings.HasSuffix(name, "/"+service) {
			d = min(d, 1)
		}
		if d <= max(1, len(name)/3) {
			found = append(found, candidate{n, d})
		}
	}
	slices.SortFunc(found, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.distance, b.distance), strings.Compare(a.name, b.name))
	})
	out := make([]string, 0, 5)
	for _, c := range found[:min(5, len(found))] {
		out = append(out, c.name)
	}
	return out
}

// distance counts the insertions, deletions, replacements and swaps of neighbours that turn a into b.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	before, last := make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(x); i++ {
		row := make([]int, len(y)+1)
		row[0] = i
		for j := 1; j <= len(y); j++ {
			replace := last[j-1]
			if x[i-1] != y[j-1] {
				replace++
			}
			row[j] = min(last[j]+1, row[j-1]+1, replace)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(y)]
}

func sortNames(names []serviceName) []serviceName {
	slices.SortFunc(names, func(a, b serviceName) int { return strings.Compare(a.String(), b.String()) })
	return names
}
