package devprogram

import (
	"fmt"
	"io"
	"time"
)

// progress tells somebody who waits for a build what is going on: on a terminal a line that is rewritten every second,
// elsewhere a line every half minute. A build that is done within the patience is not worth a word.
type progress struct {
	out      io.Writer
	terminal bool
	patience time.Duration
}

const (
	// The number is for somebody who compiled this program already and nothing else; lines fit a narrow terminal.
	firstBuild = "building " + Name + ", which has a Temporal server and its Web UI inside:\n" +
		"  about 1200 packages, several minutes, this once"
	rebuild = "building " + Name + " again, because something changed"
)

// start returns what is to be called when the build has ended.
func (p progress) start(first bool, compiled func() int) (stop func(done bool)) {
	ended, said := make(chan bool), make(chan struct{})
	go func() {
		defer close(said)
		p.report(first, compiled, ended)
	}()
	return func(done bool) {
		ended <- done
		<-said
	}
}

func (p progress) report(first bool, compiled func() int, ended <-chan bool) {
	began := time.Now()
	if p.patience > 0 {
		select {
		case <-ended:
			return
		case <-time.After(p.patience):
		}
	}
	message := rebuild
	if first {
		message = firstBuild
	}
	fmt.Fprintln(p.out, message)

	interval := 30 * time.Second
	if p.terminal {
		interval = time.Second
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case done := <-ended:
			if done {
				p.line(fmt.Sprintf("built in %s", elapsed(began)))
			}
			if p.terminal {
				fmt.Fprintln(p.out)
			}
			return
		case <-ticker.C:
			p.line(fmt.Sprintf("%s, %d packages compiled", elapsed(began), compiled()))
		}
	}
}

func (p progress) line(text string) {
	if p.terminal {
		fmt.Fprintf(p.out, "\r\x1b[K  %s", text)
		return
	}
	fmt.Fprintf(p.out, "  %s\n", text)
}

func elapsed(since time.Time) time.Duration { return time.Since(since).Round(time.Second) }
