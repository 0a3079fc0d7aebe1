package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/converge-engine/converge/client/importer"
	"github.com/converge-engine/converge/client/origin"
	"github.com/converge-engine/converge/cmd/internal/show"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/compile"
	"github.com/converge-engine/converge/intent/config"
)

// target describes the output of an import.
func (o *initOptions) target() (importer.Target, error) {
	name, err := o.applicationName()
	return importer.Target{Dir: o.dir, Application: name, ReadOnly: o.access == "read"}, err
}

func (o *initOptions) fromECS(ctx context.Context) error {
	to, err := o.target()
	if err != nil {
		return err
	}
	if o.region == "" {
		return errors.New("--region is required")
	}
	written, err := importer.FromECS(ctx, to, importer.Cluster{Name: o.cluster, Region: o.region, Role: o.role})
	if err != nil {
		return err
	}
	return o.printImported(written,
		fmt.Sprintf("application %s in %s, with %d of the cluster's %d services", to.Application, o.dir, written.Services, written.Found),
		"next: converge config validate "+o.dir+", then converge config publish "+o.dir+"; "+o.whatHappens("what runs is adopted unchanged"))
}

func (o *initOptions) fromMeta() error {
	to, err := o.target()
	if err != nil {
		return err
	}
	written, err := importer.FromMeta(to)
	if err != nil {
		return err
	}
	return o.printImported(written,
		fmt.Sprintf("application %s in %s, with %s", to.Application, o.dir, entities.Count(written.Services, "service")),
		"next: define the commands in "+filepath.Join(o.dir, "work")+", then converge config validate "+o.dir+" and converge run plan "+o.dir)
}

func (o *initOptions) fromFiles(ctx context.Context) error {
	to, err := o.target()
	if err != nil {
		return err
	}
	written, err := importer.FromFiles(ctx, to, importer.Tool(o.from), func(ctx context.Context, dir string) error {
		return o.f.withSources(ctx, origin.Tree{Dir: dir}, "", false, func(options config.Options) error {
			if _, err := compile.Lock(ctx, dir, options, false); err != nil { // charts of repositories
				return err
			}
			config, err := compile.LoadWith(dir, options)
			if err == nil {
				_, err = compile.Compile(config)
			}
			return err
		})
	})
	if err != nil {
		return err
	}
	return o.printImported(written,
		fmt.Sprintf("application %s in %s, with %s in %s", to.Application, o.dir, entities.Count(written.Services, "service"), entities.Count(written.Channels, "release channel")),
		"next: converge config validate "+o.dir+", then converge plan "+o.dir+": "+o.whatHappens("it shows whose fields are taken over, and what is removed"))
}

// whatHappens is what follows the next command: where nothing may be written, Converge only reports.
func (o *initOptions) whatHappens(otherwise string) string {
	if o.access == "read" {
		return "Converge reports what it would apply, and writes nothing"
	}
	return otherwise
}

// printImported prints what an import leaves out, and what it writes.
func (o *initOptions) printImported(written importer.Result, lines ...string) error {
	for _, line := range written.Omitted {
		o.f.note("omitted: %s", line)
	}
	if len(written.Imported) > 0 {
		t := show.Table{Header: []string{"SERVICE", "RELEASE CHANNELS", "FROM"}}
		for _, one := range written.Imported {
			t.Rows = append(t.Rows, []string{one.Service, strings.Join(one.Channels, ", "), one.Source})
		}
		if err := o.f.screen().Table(t); err != nil {
			return err
		}
	}
	return o.f.screen().Lines(lines...)
}
