package sops

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"

	"filippo.io/age"
)

// Keys are the age identities of a worker, by application. Nil has none. It is safe for concurrent use.
type Keys struct{ identities map[string][]age.Identity } // by application; "": for all

// The environment variables from which SOPS takes identities.
const (
	FileVariable = "SOPS_AGE_KEY_FILE"
	KeyVariable  = "SOPS_AGE_KEY"
)

// Load reads identities from files: FILE, or APPLICATION=FILE for one application only. Without files it uses the identities of SOPS:
// the file in SOPS_AGE_KEY_FILE, and SOPS_AGE_KEY. It rejects a file that others may read or write. No error contains an identity.
func Load(files []string, lookup func(name string) string) (*Keys, error) {
	k := &Keys{identities: map[string][]age.Identity{}}
	if len(files) > 0 {
		for _, given := range files {
			application, file, named := strings.Cut(given, "=")
			if !named {
				application, file = "", given
			}
			if err := k.file(application, file); err != nil {
				return nil, err
			}
		}
		return k, nil
	}
	if text := lookup(KeyVariable); text != "" {
		if err := k.add("", text); err != nil {
			return nil, fmt.Errorf("age identities of %s: %w", KeyVariable, err)
		}
	}
	if file := lookup(FileVariable); file != "" {
		if err := k.file("", file); err != nil {
			return nil, fmt.Errorf("%s: %w", FileVariable, err)
		}
	}
	return k, nil
}

func (k *Keys) file(application, name string) error {
	info, err := os.Stat(name)
	if err == nil && runtime.GOOS != "windows" {
		err = private(info)
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(name)
	}
	if err == nil {
		err = k.add(application, string(text))
	}
	if err != nil {
		return fmt.Errorf("age identities of %s: %w", name, fileReason(err))
	}
	return nil
}

// private rejects a file that others may read, or that anyone except its owner may write. Its group may read it, as for files that a
// cluster mounts.
func private(info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return errors.New("it is not a regular file")
	}
	if mode := info.Mode().Perm(); mode&0o027 != 0 {
		return fmt.Errorf("other users can read or change it (%#o); use chmod 600", mode)
	}
	return nil
}

// fileReason removes the leading file name from an error.
func fileReason(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

func (k *Keys) add(application, text string) error {
	found, err := age.ParseIdentities(strings.NewReader(text))
	if err != nil {
		return errors.New("it contains something else; expected lines that begin with AGE-SECRET-KEY-, from age-keygen")
	}
	k.identities[application] = append(k.identities[application], found...)
	return nil
}

// identitiesFor returns the identities for an application.
func (k *Keys) identitiesFor(application string) []age.Identity {
	if k == nil {
		return nil
	}
	return slices.Concat(k.identities[application], k.identities[""])
}

// recipientsOf returns the public keys of identities.
func recipientsOf(all []age.Identity) (names []string) {
	for _, each := range all {
		switch i := each.(type) {
		case *age.X25519Identity:
			names = append(names, i.Recipient().String())
		case *age.HybridIdentity:
			names = append(names, i.Recipient().String())
		}
	}
	return names
}
