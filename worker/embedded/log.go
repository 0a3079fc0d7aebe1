package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"

	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/log/tag"
)

// serverLog receives the server's log. Errors pass. Warnings become debug records because they address operators of a cluster. Everything
// is dropped once the server is being stopped, when its parts report errors about each other.
type serverLog struct {
	out   *slog.Logger
	tags  []tag.Tag
	state *logState
	// fail is called with a fatal error while the server starts.
	fail func(error)
}

type logState struct{ started, stopping atomic.Bool }

var _ log.WithLogger = (*serverLog)(nil)

func newServerLog(out *slog.Logger, fail func(error)) *serverLog {
	if out == nil {
		out = slog.New(slog.DiscardHandler)
	}
	return &serverLog{out: out, state: &logState{}, fail: fail}
}

func (l *serverLog) started()  { l.state.started.Store(true) }
func (l *serverLog) stopping() { l.state.stopping.Store(true) }

// With implements log.WithLogger.
func (l *serverLog) With(tags ...tag.Tag) log.Logger {
	with := *l
	with.tags = append(append([]tag.Tag{}, l.tags...), tags...)
	return &with
}

// Debug implements log.Logger.
func (l *serverLog) Debug(string, ...tag.Tag) {}

// Info implements log.Logger.
func (l *serverLog) Info(string, ...tag.Tag) {}

// Warn implements log.Logger.
func (l *serverLog) Warn(message string, tags ...tag.Tag) { l.write(slog.LevelDebug, message, tags) }

// Error implements log.Logger.
func (l *serverLog) Error(message string, tags ...tag.Tag) { l.write(slog.LevelError, message, tags) }

// DPanic implements log.Logger; it panics in development builds of the server only.
func (l *serverLog) DPanic(message string, tags ...tag.Tag) { l.Error(message, tags...) }

// Panic implements log.Logger.
func (l *serverLog) Panic(message string, tags ...tag.Tag) {
	l.Error(message, tags...)
	panic(message)
}

// Fatal implements log.Logger. Its callers rely on it not to return, and the default one ends the process. While the server starts, Start
// fails and the caller blocks, since callers with deferred functions misinterpret both a panic and a goroutine exit. Later there is no
// caller that could get the error, and to continue would hide it.
func (l *serverLog) Fatal(message string, tags ...tag.Tag) {
	if l.state.stopping.Load() {
		runtime.Goexit()
	}
	l.Error(message, tags...)
	err := l.describe(message, tags)
	if l.state.started.Load() {
		panic(err)
	}
	l.fail(err)
	select {}
}

func (l *serverLog) write(level slog.Level, message string, tags []tag.Tag) {
	ctx := context.Background()
	if l.state.stopping.Load() || !l.out.Enabled(ctx, level) {
		return
	}
	attrs := make([]slog.Attr, 0, len(l.tags)+len(tags))
	for _, t := range l.all(tags) {
		attrs = append(attrs, slog.Any(t.Key(), t.Value()))
	}
	l.out.LogAttrs(ctx, level, message, attrs...)
}

func (l *serverLog) describe(message string, tags []tag.Tag) error {
	parts := []string{message}
	for _, t := range l.all(tags) {
		parts = append(parts, fmt.Sprintf("%s=%v", t.Key(), t.Value()))
	}
	return errors.New(strings.Join(parts, " "))
}

func (l *serverLog) all(tags []tag.Tag) []tag.Tag {
	return append(append([]tag.Tag{}, l.tags...), tags...)
}
