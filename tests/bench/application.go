package main

import (
	"fmt"
	"time"
)

// application is a configuration to publish.
type application struct {
	name     string
	channels int
	services []string
	version  string        // the services' initial version; empty for none
	steady   time.Duration // between looks at what is steady
}

// yaml declares channels c1, c2, … each behind the one before.
func (a application) yaml() string {
	text := fmt.Sprintf("apiVersion: converge/v1\nkind: Application\nname: %s\nreleaseChannels:\n", a.name)
	for n := 1; n <= a.channels; n++ {
		text += fmt.Sprintf("- name: %s\n  runtimes: [{name: %s-rt}]\n", channel(n), a.name)
		if n > 1 {
			text += fmt.Sprintf("  preconditions: [{releaseChannelStable: {releaseChannel: %s}}]\n", channel(n-1))
		}
	}
	text += fmt.Sprintf("---\napiVersion: converge/v1\nkind: Runtime\nname: %s-rt\nfake: {pollInterval: %s, steadyPollInterval: %s}\n",
		a.name, min(a.steady, 5*time.Second), a.steady)
	for _, s := range a.services {
		text += fmt.Sprintf("---\napiVersion: converge/v1\nkind: Service\nname: %s\n", s)
		if a.version != "" {
			text += fmt.Sprintf("initialVersion: %s\n", a.version)
		}
		text += "parameters:\n- {name: greeting, type: string, default: hello}\n" +
			"custom: {env: {GREETING: \"${{ params.greeting }}\", VERSION: \"${{ version }}\"}}\n"
	}
	return text
}

func channel(n int) string { return fmt.Sprintf("c%d", n) }

func serviceNames(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("s%04d", i)
	}
	return out
}
