package compile

import (
	"path"

	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/strict"
	"github.com/converge-engine/converge/intent/sources"
)

// patch applies the patches of the service to the objects in order.
func (b *objectSet) patch() {
	if b.failed {
		return // the missing source may be the target of a patch
	}
	for _, p := range b.draft.patches {
		if b.Faulty(p.at) {
			b.failed = true
			return
		}
		text := p.v.Patch
		if p.v.Path != "" {
			clean, fault := config.LocalFile(p.v.Path)
			read, ok := b.inputs.Patches[path.Join(path.Dir(b.File), clean)]
			if fault != nil || !ok {
				b.failed = true
				return // already reported
			}
			text = read
		}
		objects := strict.Map(b.objects, func(o located[*sources.Object]) *sources.Object { return o.v })
		changed, faults := b.inputs.Patch(objects, p.v.Target, text)
		for _, fault := range faults {
			b.fail(p.at, fault)
		}
		if len(faults) > 0 {
			return
		}
		kept := b.objects[:0:0]
		for i, o := range b.objects {
			if changed[i] != nil { // otherwise it was deleted
				o.v = changed[i]
				kept = append(kept, o)
			}
		}
		b.objects = kept
	}
}
