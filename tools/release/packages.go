package main

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // a format of packages
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm" // another one
)

//go:embed system
var system embed.FS

// installed is where a file is installed. packager is "deb" or "rpm"; empty: both.
type installed struct{ path, packager string }

// places are where packages have the files of an archive. A folder ends with a slash.
var places = map[string][]installed{
	"converge":                       {{"/usr/bin/converge", ""}},
	"converge-render":                {{"/usr/bin/converge-render", ""}},
	"converge-wrapper":               {{"/usr/bin/converge-wrapper", ""}},
	"LICENSE":                        {{"/usr/share/doc/converge/copyright", "deb"}, {"/usr/share/licenses/converge/LICENSE", "rpm"}},
	"CHANGELOG.md":                   {{"/usr/share/doc/converge/CHANGELOG.md", ""}},
	"completions/converge.bash":      {{"/usr/share/bash-completion/completions/converge", ""}},
	"completions/_converge":          {{"/usr/share/zsh/vendor-completions/_converge", "deb"}, {"/usr/share/zsh/site-functions/_converge", "rpm"}},
	"completions/converge.fish":      {{"/usr/share/fish/vendor_completions.d/converge.fish", ""}},
	"man/man1/":                      {{"/usr/share/man/man1/", ""}},
	"sbom/":                          {{"/usr/share/doc/converge/sbom/", ""}},
	"system/converge-worker.service": {{"/usr/lib/systemd/system/converge-worker.service", ""}},
	"system/converge-serve.service":  {{"/usr/lib/systemd/system/converge-serve.service", ""}},
	"system/sysusers.conf":           {{"/usr/lib/sysusers.d/converge.conf", ""}},
	"system/converge.env":            {{"/etc/converge/converge.env", ""}},
	"system/installed.sh":            nil, // it is run
	"system/removed.sh":              nil,
}

// placesOf returns where a file is installed.
func placesOf(path string) ([]installed, error) {
	if at, ok := places[path]; ok {
		return at, nil
	}
	folder, name := filepath.Split(path)
	var all []installed
	for _, at := range places[folder] {
		all = append(all, installed{at.path + name, at.packager})
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no place is known where %s is to be installed", path)
	}
	return all, nil
}

// systemFiles are the units of systemd, their environment and user, and the scripts of packages; none on other platforms.
func systemFiles(p platform) (all []file, err error) {
	if p.os != "linux" {
		return nil, nil
	}
	entries, err := fs.ReadDir(system, "system")
	for _, e := range entries {
		content, err := system.ReadFile("system/" + e.Name())
		if err != nil {
			return nil, err
		}
		all = append(all, file{"system/" + e.Name(), 0o644, content})
	}
	return all, err
}

// writePackages writes the packages of Debian and Red Hat with the files of an archive.
func (r *release) writePackages(p platform, name string, all []file, work, complete string) error {
	root := filepath.Join(work, "package_"+p.arch)
	if err := os.Mkdir(root, 0o700); err != nil {
		return err
	}
	var contents files.Contents
	for n, f := range all {
		source := filepath.Join(root, fmt.Sprint(n))
		if filepath.Ext(f.path) == ".sh" {
			source = filepath.Join(root, filepath.Base(f.path))
		}
		if err := os.WriteFile(source, f.content, 0o600); err != nil {
			return err
		}
		at, err := placesOf(f.path)
		if err != nil {
			return err
		}
		for _, i := range at {
			content := &files.Content{Source: source, Destination: i.path, Packager: i.packager, FileInfo: &files.ContentFileInfo{Mode: f.mode, MTime: r.committed}}
			if strings.HasPrefix(i.path, "/etc/") {
				content.Type, content.FileInfo.Mode = files.TypeConfigNoReplace, 0o600
			}
			contents = append(contents, content)
		}
	}
	info := nfpm.Info{
		Name: "converge", Arch: p.arch, Platform: p.os, Version: r.version, MTime: r.committed, DisableGlobbing: true,
		Section: "admin", Priority: "optional", License: "Apache-2.0", Maintainer: "Converge <" + repository + ">",
		Homepage: repository, Description: "Release services through channels, durably, on Temporal",
		Overridables: nfpm.Overridables{
			Contents: contents,
			Scripts:  nfpm.Scripts{PostInstall: filepath.Join(root, "installed.sh"), PreRemove: filepath.Join(root, "removed.sh")},
			RPM:      nfpm.RPM{BuildHost: "localhost", Summary: "Release services through channels, durably, on Temporal"},
		},
	}
	for _, format := range []string{"deb", "rpm"} {
		if err := writePackage(format, info, filepath.Join(complete, name+"."+format)); err != nil {
			return fmt.Errorf("%s: %w", format, err)
		}
	}
	return nil
}

func writePackage(format string, info nfpm.Info, path string) error {
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	prepared := nfpm.WithDefaults(&info)
	if err := nfpm.PrepareForPackager(prepared, format); err != nil {
		return err
	}
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := packager.Package(prepared, out); err != nil {
		return err
	}
	return out.Close()
}
