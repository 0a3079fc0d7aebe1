package sources

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/strict"
	"github.com/converge-engine/converge/intent/sops"
)

// encrypted are SOPS-encrypted files, in which the file of a value is searched.
type encrypted []encryptedFile

type encryptedFile struct {
	*sops.File
	name  string
	text  []byte
	wrong error // why it cannot be used; File is then nil
}

func newEncryptedFile(name string, text []byte) encryptedFile {
	f, err := sops.Read(text)
	return encryptedFile{f, name, text, err}
}

// of returns the file of an encrypted value, or else an unusable file that may contain it.
func (all encrypted) of(value string) *encryptedFile {
	i := slices.IndexFunc(all, func(f encryptedFile) bool { return f.wrong == nil && f.Has(value) })
	if i < 0 {
		i = slices.IndexFunc(all, func(f encryptedFile) bool { return f.wrong != nil })
	}
	if i < 0 {
		return nil
	}
	return &all[i]
}

// isEncrypted reports whether SOPS encrypted a file. Parse errors are reported elsewhere.
func isEncrypted(text []byte) bool {
	if !bytes.Contains(text, []byte(sops.Field)) || !bytes.Contains(text, []byte("lastmodified")) {
		return false
	}
	var node yaml.Node
	if config.DecodeNode(yaml.NewDecoder(bytes.NewReader(text)), &node) != nil || len(node.Content) == 0 {
		return false
	}
	meta := entry(node.Content[0], sops.Field)
	return entry(meta, "mac") != nil && entry(meta, "lastmodified") != nil
}

// encryptedIn reads the encrypted files of a kustomization. A problem of a file counts only if it became an object.
func encryptedIn(fsys fs.FS, files []string) (all encrypted) {
	for _, name := range files {
		if !slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(name)) {
			continue
		}
		text, err := fs.ReadFile(fsys, name)
		if err == nil && isEncrypted(text) {
			all = append(all, newEncryptedFile(name, text))
		}
	}
	return all
}

// encrypted accepts an object that SOPS encrypted. It stays encrypted. The object contains its readable fields and the whole file, which
// is decrypted where the object is applied. Only Secrets are accepted, because other kinds are shown to users.
func (c *objectCheck) encrypted(among encrypted) {
	found := sops.FirstSealed(c.fields)
	if !c.concernsUs(found) {
		return
	}
	delete(c.fields, sops.Field)
	file := among.of(found)
	if fault := c.undecipherable(found, file); fault != nil {
		c.Report("", *fault)
		c.object.Encrypted = c.object.Kind == "Secret"
	} else if found != "" {
		c.object.Encrypted, c.sealed = true, string(file.text)
	}
}

// concernsUs reports whether Converge must decrypt an object. Custom kinds may have SOPS metadata and cipher text for their own
// controllers.
func (c *objectCheck) concernsUs(found string) bool {
	group := c.object.Group
	if sops.Is(c.fields) {
		return !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io")
	}
	return found != "" && group == "" && (c.object.Kind == "Secret" || c.object.Kind == "ConfigMap")
}

// undecipherable returns why an object cannot be decrypted, or nil. An object that is not a Secret may be in the same file as a Secret.
func (c *objectCheck) undecipherable(found string, file *encryptedFile) *strict.Fault {
	because := func(message, expected string) *strict.Fault {
		return &strict.Fault{Code: "encrypted", Message: message, Expected: expected}
	}
	switch {
	case file != nil && file.wrong != nil:
		return because(fmt.Sprintf("%s is encrypted by SOPS, and cannot be used: %v", file.name, file.wrong), "")
	case found == "" && c.object.Kind != "Secret":
		return nil
	case found == "":
		return because("SOPS encrypted nothing in this Secret", `--encrypted-regex "^(data|stringData)$"`)
	case c.object.Kind != "Secret":
		return because("this is encrypted by SOPS, and its decrypted content would be shown in plans and drift", "a Secret")
	case file == nil:
		return because("this is encrypted by SOPS, and the file that SOPS encrypted is missing: its MAC covers the whole file",
			"the file itself among manifests, or among the resources of a kustomization")
	}
	if err := file.Fits(c.fields); err != nil {
		return because(err.Error(), "the values of "+file.name)
	}
	return nil
}

// asItIs rejects substitutions in encrypted files, because the MAC covers the whole file.
func (c *objectCheck) asItIs() {
	for _, text := range c.object.Texts {
		c.Report(text.Path, strict.Fault{Code: "no-substitution", Message: "substitution is not supported in a file that SOPS encrypted, because its MAC covers all of it", Expected: `text without "${{"`})
	}
	c.object.Texts = nil
	c.fields[sops.Field] = c.sealed
}
