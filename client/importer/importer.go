// Package importer writes a configuration for existing services: from a cluster of Amazon ECS, or from files for another tool. It reads
// that cluster or those files, and writes into one directory.
//
// It overwrites no configuration, prints nothing, and starts and changes no service. It may import entities, intent and runtimes.
package importer

import (
	"regexp"
	"strings"

	"github.com/converge-engine/converge/intent/config"
)

// Target names the application of the new configuration, and the directory of its files.
type Target struct {
	Dir, Application string
	// ReadOnly writes runtimes with access: read.
	ReadOnly bool
}

// Result counts the services and release channels that an import writes, and lists everything that it leaves out.
type Result struct {
	// Found is the number of services on the cluster, for an import from ECS only.
	Found    int
	Services int
	Channels int
	// Imported are the services of an import from files, by name.
	Imported []Imported
	// Omitted contains one line, with the reason, for each thing that is missing in the configuration.
	Omitted []string
}

// Imported is a service that an import writes: its release channels, in order, and what it is deployed from.
type Imported struct {
	Service  string
	Channels []string
	Source   string // a directory, a chart, or its address
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// NameOf derives a service name from a text. The result may be empty or too long, because some texts contain no valid name.
func NameOf(text string) string {
	return strings.Trim(notInNames.ReplaceAllString(strings.ToLower(text), "-"), "-0123456789")
}

func isName(name string) bool { return config.Name(name).Check() == nil }
