package lab

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"syscall"
)

// readCommands sends the lines of input and closes the channel at its end. Without input nothing ever comes.
func readCommands(input io.Reader) <-chan string {
	lines := make(chan string)
	if input == nil {
		return lines
	}
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(input); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	return lines
}

// obey carries out "VERB CLUSTER COMPONENT" and answers with a line: "ok", or "error" and the reason. The verbs are
// stop (at once, as a crash would), start (with the same arguments; an API server is waited for), pause and resume
// (the process stands still: connections are accepted and nothing answers).
func (l *running) obey(ctx context.Context, line string) {
	if err := l.command(ctx, strings.Fields(line)); err != nil {
		fmt.Fprintf(l.options.Talk, "error %s: %v\n", line, err)
		return
	}
	fmt.Fprintln(l.options.Talk, "ok", line)
}

func (l *running) command(ctx context.Context, words []string) error {
	if len(words) != 3 {
		return fmt.Errorf("want VERB CLUSTER COMPONENT, got %d words", len(words))
	}
	c := l.cluster(words[1])
	if c == nil {
		return fmt.Errorf("no cluster %q", words[1])
	}
	component := c.child(words[2])
	if component == nil {
		return fmt.Errorf("no component %q", words[2])
	}
	switch words[0] {
	case "stop":
		component.kill()
		return nil
	case "start":
		if err := c.run(component.name, component.args...); err != nil || component.name != APIServer {
			return err
		}
		return l.waitReady(ctx, c)
	case "pause":
		return component.signal(syscall.SIGSTOP)
	case "resume":
		return component.signal(syscall.SIGCONT)
	default:
		return fmt.Errorf("want stop, start, pause or resume, got %q", words[0])
	}
}

func (l *running) cluster(name string) *cluster {
	for _, c := range l.clusters {
		if c.name == name {
			return c
		}
	}
	return nil
}
