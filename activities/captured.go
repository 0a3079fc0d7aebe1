package activities

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/converge-engine/converge/entities/plan"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/sops"
	"github.com/converge-engine/converge/intent/store"
)

// This file captures the output of commands that set services up (E2). A command prints it; from then on it is encrypted. Only the worker
// decrypts it, for a command that is about to start.

// maxCaptured limits the captured output per service, in bytes.
const maxCaptured = 256 << 10

// Captured decrypts the captured secrets of a service in a release channel. Errors do not contain them.
func (a *Activities) Captured(ctx context.Context, application, channel, service string) (map[string]string, error) {
	c, err := a.Store.Captured(ctx, application, channel, service)
	if store.IsNotFound(err) {
		return nil, fmt.Errorf("no secrets of service %s are captured in %s yet", service, channel)
	}
	if err != nil {
		return nil, err
	}
	texts, err := a.Sops.Texts(application, []byte(c.File))
	if err != nil {
		return nil, fmt.Errorf("decrypt captured secrets of service %s in %s: %w", service, channel, err)
	}
	return texts, nil
}

// lastCapture returns the version of the last capture of a command's service, and whether its secrets are captured again: because some
// are missing, or at a user's request.
func (a *Activities) lastCapture(ctx context.Context, r *protocol.PlanRunRequest) (version int64, recapture bool, err error) {
	c, err := a.Store.Captured(ctx, r.Application, r.Channel, r.Command.Service)
	if store.IsNotFound(err) || store.IsDamaged(err) {
		return c.Version, true, nil
	}
	if err != nil {
		return 0, false, err
	}
	for _, name := range r.Command.Captures {
		recapture = recapture || !slices.Contains(c.Names, name)
	}
	if !recapture {
		record, err := a.Store.Plan(ctx, r.PlanRef)
		if err != nil {
			return 0, false, err
		}
		recapture = slices.Contains(record.Recapture, r.Command.Service)
	}
	return c.Version, recapture, nil
}

// capture encrypts and stores the output of a command. If another attempt was first, its output is kept. Errors do not contain the
// output.
func (a *Activities) capture(ctx context.Context, work *plan.Work, r *protocol.PlanRunRequest, before int64, stdout []byte) error {
	texts, err := parseCaptured(stdout, r.Command.Captures)
	if err != nil {
		return err
	}
	file, err := sops.Seal(r.Command.Service, texts, work.Recipients, time.Now())
	if err != nil {
		return err
	}
	_, err = a.Store.CreateCaptured(ctx, store.Captured{
		Application: r.Application, Channel: r.Channel, Service: r.Command.Service, Version: before + 1, Names: r.Command.Captures, File: string(file),
	})
	return err
}

// parseCaptured parses the secrets that a command printed, exactly the wanted ones: a JSON object of strings, or lines of NAME=TEXT.
// Errors do not contain values.
func parseCaptured(output []byte, wanted []string) (map[string]string, error) {
	if len(output) > maxCaptured {
		return nil, fmt.Errorf("the output has %d bytes; expected at most %d", len(output), maxCaptured)
	}
	if !utf8.Valid(output) || bytes.IndexByte(output, 0) >= 0 {
		return nil, errors.New("the output is not text")
	}
	texts, err := map[string]string{}, error(nil)
	if trimmed := bytes.TrimSpace(output); bytes.HasPrefix(trimmed, []byte("{")) {
		if json.Unmarshal(trimmed, &texts) != nil {
			return nil, errors.New("the output is not a JSON object of strings")
		}
	} else if texts, err = parseCapturedLines(string(trimmed)); err != nil {
		return nil, err
	}
	for _, name := range wanted {
		if texts[name] == "" {
			return nil, fmt.Errorf("the output lacks %s", name)
		}
	}
	if len(texts) > len(wanted) {
		return nil, fmt.Errorf("the output has %d secrets; expected only %s", len(texts), strings.Join(wanted, ", "))
	}
	return texts, nil
}

func parseCapturedLines(output string) (map[string]string, error) {
	texts := map[string]string{}
	for n, line := range strings.Split(output, "\n") {
		line = strings.TrimSuffix(line, "\r")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, text, found := strings.Cut(line, "=")
		if !found {
			return nil, fmt.Errorf("line %d of the output is not NAME=TEXT, and the output is not a JSON object", n+1)
		}
		if _, duplicate := texts[name]; duplicate {
			return nil, fmt.Errorf("line %d of the output repeats a name", n+1)
		}
		texts[name] = text
	}
	return texts, nil
}

// fillInput builds the document of a node and fills the captured secrets in.
func (a *Activities) fillInput(ctx context.Context, work *plan.Work, w *protocol.PlanWork, options *commandOptions) error {
	var err error
	if work, err = options.reported.withAddresses(ctx, work, options.reportsValues); err != nil {
		return err
	}
	input := work.Input(nodeOf(w))
	if input.Fragments, err = a.collected(ctx, work, w); err != nil {
		return err
	}
	known := map[string]map[string]string{}
	for i := range input.Fragments {
		f := &input.Fragments[i]
		if f.Captured {
			err = a.fillCaptured(ctx, work, f, known, options)
		}
		if f.Reported && err == nil { // after that, because reported values contain no secret
			f.Reported, f.Content = false, options.reported.text(ctx, f.Content)
			err = options.reported.err
		}
		if err != nil {
			return fmt.Errorf("input of %s for %s: %w", f.Service, f.Aggregator, err)
		}
	}
	document, err := json.Marshal(input)
	options.document = string(document)
	return err
}

// fillCaptured fills captured secrets into a fragment. known caches them by service.
func (a *Activities) fillCaptured(ctx context.Context, work *plan.Work, f *plan.Fragment, known map[string]map[string]string, options *commandOptions) (missing error) {
	f.Captured = false
	f.Content = plan.ReplaceCaptured(f.Content, func(service, name string) string {
		if _, isCached := known[service]; !isCached {
			texts, err := a.Captured(ctx, work.Application, work.Channel, service)
			known[service], missing = texts, errors.Join(missing, err)
		}
		text, captured := known[service][name]
		if !captured {
			missing = errors.Join(missing, fmt.Errorf("secret %s of service %s is not captured", name, service))
		}
		options.redact = append(options.redact, text)
		return text
	})
	return missing
}
