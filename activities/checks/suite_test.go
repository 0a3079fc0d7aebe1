package checks_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/activities/checks"
	"github.com/converge-engine/converge/entities"
)

// This file is the suite for the guarantees of every kind of check. Each kind joins it with a table of rows.

// Kind is a kind of check that joins the suite.
type Kind struct {
	Kind entities.CheckKind
	Rows []Row // the first one queries an external system, unless the kind is evaluated offline
	// Secrets must not be seen anywhere.
	Secrets []string
}

// Row is a request and its expected reading.
type Row struct {
	Name    string
	Sources checks.Sources
	Request checks.Request
	Want    entities.Verdict
	Reason  string // the whole reason, or its beginning before …
}

// Conform runs the suite.
func Conform(t *testing.T, k Kind) {
	t.Helper()
	for _, row := range k.Rows {
		t.Run(row.Name, func(t *testing.T) {
			t.Parallel()
			k.checkRow(t, row)
		})
	}
	first := k.Rows[0]
	t.Run("a definition without its part is an ERROR", func(t *testing.T) {
		t.Parallel()
		request := first.Request
		request.Definition = entities.CheckDefinition{Application: "shop", Service: "web", Channel: "prod", ID: "x", Kind: k.Kind}
		require.Equal(t, entities.Error, k.evaluate(t, first.Sources, request).Verdict)
	})
	t.Run("no sources give an ERROR, or the same verdict", func(t *testing.T) {
		t.Parallel()
		want := entities.Error
		if k.Kind.Offline() {
			want = first.Want
		}
		require.Equal(t, want, k.evaluate(t, checks.Sources{}, first.Request).Verdict)
	})
	t.Run("an ended context is an ERROR", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.Equal(t, entities.Error, checks.Evaluate(ctx, first.Sources, first.Request).Verdict)
	})
	if k.Kind.Offline() {
		return
	}
	t.Run("a context that ends during a query is an ERROR at once", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.Equal(t, entities.Error, checks.Evaluate(ctx, Hanging(cancel), first.Request).Verdict)
		require.ErrorIs(t, ctx.Err(), context.Canceled, "it did not end with its context, or made no query")
	})
	t.Run("a source that panics is an ERROR", func(t *testing.T) {
		t.Parallel()
		r := k.evaluate(t, Hanging(func() { panic("out of luck") }), first.Request)
		require.Equal(t, entities.Error, r.Verdict)
		require.Contains(t, r.Reason, "out of luck")
	})
}

func (k Kind) checkRow(t *testing.T, row Row) {
	t.Helper()
	before := asJSON(t, row.Request)
	r := k.evaluate(t, row.Sources, row.Request)
	prefix, isPrefix := strings.CutSuffix(row.Reason, "…")
	require.Equal(t, row.Want, r.Verdict, r.Reason)
	if isPrefix {
		require.True(t, strings.HasPrefix(r.Reason, prefix), r.Reason)
	} else {
		require.Equal(t, row.Reason, r.Reason)
	}
	require.Equal(t, before, asJSON(t, row.Request), "the request was modified")
	require.Equal(t, r, k.evaluate(t, row.Sources, row.Request), "a second evaluation differs")
}

// evaluate evaluates, and checks the guarantees of every reading.
func (k Kind) evaluate(t *testing.T, sources checks.Sources, request checks.Request) entities.CheckReading {
	t.Helper()
	r := checks.Evaluate(t.Context(), sources, request)
	require.Contains(t, []entities.Verdict{entities.Pass, entities.Wait, entities.Fail, entities.Error}, r.Verdict)
	require.Equal(t, request.Now, r.At)
	require.NotEmpty(t, r.Reason)
	require.LessOrEqual(t, len(r.Reason), checks.MaxReason)
	require.True(t, utf8.ValidString(r.Reason), r.Reason)
	require.NotContains(t, r.Reason, "\n")
	for _, secret := range k.Secrets {
		require.NotContains(t, r.Reason, secret)
	}
	return r
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	require.NoError(t, err)
	return string(data)
}
