package read

import (
	"context"
	"fmt"
	"slices"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/intent/store"
)

// Incarnations are the incarnations of an application: the newest from its workflow, older ones from the store.
type Incarnations struct {
	Status protocol.ApplicationStatus
	Store  *store.Store
}

// OpenIncarnations queries the application, and opens the store.
func OpenIncarnations(ctx context.Context, c Calls, application string, stores Store) (*Incarnations, error) {
	status, err := Application(ctx, c, application)
	if err != nil {
		return nil, err
	}
	at, err := stores.Open(ctx, status.Store)
	return &Incarnations{status, at}, err
}

// Number finds one incarnation.
func (h *Incarnations) Number(ctx context.Context, n int64) (protocol.Incarnation, error) {
	for _, i := range h.Status.Incarnations {
		if i.Number == n {
			return i, nil
		}
	}
	i, err := h.Store.Number(ctx, h.Status.Application, n)
	if store.IsNotFound(err) {
		return i, &MissingError{fmt.Sprintf("%s has no incarnation %d; the newest is %d", h.Status.Application, n, h.Status.Newest)}
	}
	return i, err
}

// All lists the last n incarnations, newest first; 0 is all.
func (h *Incarnations) All(ctx context.Context, n int) ([]protocol.Incarnation, error) {
	numbers, err := h.numbers(ctx)
	if err != nil {
		return nil, err
	}
	if n > 0 {
		numbers = numbers[:min(n, len(numbers))]
	}
	return h.records(ctx, numbers)
}

// numbers returns the numbers of all incarnations, newest first.
func (h *Incarnations) numbers(ctx context.Context) ([]int64, error) {
	numbers, err := h.Store.ListNumbers(ctx, h.Status.Application)
	if err != nil {
		return nil, err
	}
	for _, i := range h.Status.Incarnations {
		numbers = append(numbers, i.Number) // the newest one reaches the store a moment later
	}
	slices.Sort(numbers)
	numbers = slices.Compact(numbers)
	slices.Reverse(numbers)
	return numbers, nil
}

func (h *Incarnations) records(ctx context.Context, numbers []int64) ([]protocol.Incarnation, error) {
	out := []protocol.Incarnation{}
	for _, number := range numbers {
		i, err := h.Number(ctx, number)
		if err != nil {
			return nil, err
		}
		out = append(out, i)
	}
	return out, nil
}

// Before returns n incarnations before a number, newest first, and whether there are older ones; before 0: the newest.
func (h *Incarnations) Before(ctx context.Context, number int64, n int) (items []protocol.Incarnation, more bool, err error) {
	numbers, err := h.numbers(ctx)
	if err != nil {
		return nil, false, err
	}
	if number > 0 {
		numbers = slices.DeleteFunc(numbers, func(other int64) bool { return other >= number })
	}
	items, err = h.records(ctx, numbers[:min(n, len(numbers))])
	return items, len(numbers) > n, err
}

// Read reads one incarnation by its number.
func (h *Incarnations) Read(ctx context.Context, number int64) (*incarnation.Incarnation, error) {
	record, err := h.Number(ctx, number)
	if err != nil {
		return nil, err
	}
	return h.Store.Incarnation(ctx, record.Hash)
}
