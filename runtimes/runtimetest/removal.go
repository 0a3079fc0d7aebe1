package runtimetest

import (
	"context"

	"github.com/converge-engine/converge/runtimes"
)

// remover is the subject as one that can take instances down (A24); tests of one that cannot are
// skipped.
func (r *run) remover() runtimes.Remover {
	r.Helper()
	remover, ok := r.Runtime.(runtimes.Remover)
	if !ok {
		r.Skip("nothing can be removed here")
	}
	return remover
}

func (r *run) remove(version string) {
	r.Helper()
	if err := r.remover().Remove(r.ctx, r.at("staging", version)); err != nil {
		r.Fatalf("remove %s: %v", version, err)
	}
}

func removedIsGone(r *run) {
	r.remover()
	r.apply("staging", "v1")
	r.settle("staging", "v1")
	r.remove("v1")
	r.empty("staging")
	r.remove("v1")
	r.empty("staging")
}

// empty looks until nothing is active any more: what is watched may be a moment behind.
func (r *run) empty(channel string) {
	r.Helper()
	for active := true; active; {
		active = false
		for _, o := range r.look(channel, "") {
			for _, v := range o.Versions {
				active = active || v.Active
			}
		}
		if active && r.ctx.Err() != nil {
			r.Fatalf("something is still active in %s", channel)
		}
	}
}

func removedNothing(r *run) {
	r.remove("v1")
	r.remove("")
	nothingThere(r)
}

func removedApart(r *run) {
	r.remover()
	for _, channel := range []string{"staging", "production"} {
		r.apply(channel, "v1")
		r.settle(channel, "v1")
	}
	r.remove("v1")
	if objects := r.look("production", "v1"); !stable(objects, "v1") {
		r.Errorf("production changed: %+v", objects)
	}
}

func removedComesBack(r *run) {
	r.remover()
	r.apply("staging", "v1")
	r.settle("staging", "v1")
	r.remove("v1")
	r.apply("staging", "v1")
	r.settle("staging", "v1")
}

func cancelledRemoval(r *run) {
	remover := r.remover()
	r.cancelled(func(ctx context.Context) error {
		err := remover.Remove(ctx, r.at("staging", "v1"))
		if runtimes.IsPermanent(err) {
			r.Errorf("%v is permanent; an interrupted removal is to be repeated", err)
		}
		return err
	})
}
