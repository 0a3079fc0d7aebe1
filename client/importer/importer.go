// Package importer writes a configuration of services that exist already: of those on a cluster of Amazon ECS, or of those that
// the files of a directory describe for another tool. It reads that cluster or those files, and writes into one directory.
//
// It overwrites no configuration, prints nothing, and starts and changes no service. It may import entities, intent and runtimes.
package importer

import (
	"regexp"
	"strings"

	"github.com/converge-engine/converge/intent/config"
)

// Target names the application that is written, and the directory that its files go to.
type Target struct{ Dir, Application string }

// Result counts the services and release channels that an import writes, and lists those things that it leaves out.
type Result struct {
	// Found is the number of services on the cluster, for an import from ECS only.
	Found    int
	Services int
	Channels int
	// Left has a line for each thing that the configuration does not have, with the reason.
	Left []string
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// NameOf makes a name of a service out of a text. It may be empty or too long: not each text has such a name.
func NameOf(text string) string {
	return strings.Trim(notInNames.ReplaceAllString(strings.ToLower(text), "-"), "-0123456789")
}

func isName(name string) bool { return config.Name(name).Check() == nil }
