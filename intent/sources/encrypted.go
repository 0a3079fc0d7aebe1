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

// encrypted are files that SOPS encrypted, among which the one is found that a value stands in.
type encrypted []encryptedFile

type encryptedFile struct {
	*sops.File
	name  string
	text  []byte
	wrong error // why it cannot be used: there is no File then
}

func newEncryptedFile(name string, text []byte) encryptedFile {
	f, err := sops.Read(text)
	return encryptedFile{f, name, text, err}
}

// of finds the file of an encrypted value, or else one that it may be in and that cannot be used.
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

// isEncrypted tells whether SOPS encrypted a file; what cannot be parsed is reported elsewhere.
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

// encryptedIn reads the encrypted ones among the files of a kustomization. What is wrong with one counts only if it
// became an object.
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

// encrypted takes in an object that SOPS encrypted: it stays so, and beside what can be seen of it lies the whole file, which
// is decrypted where the object is applied. Only Secrets are: other kinds are shown to people.
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

// concernsUs tells whether SOPS encrypted an object for us: kinds of others may have its metadata for a controller of their
// own, and their own cipher texts.
func (c *objectCheck) concernsUs(found string) bool {
	group := c.object.Group
	if sops.Is(c.fields) {
		return !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io")
	}
	return found != "" && group == "" && (c.object.Kind == "Secret" || c.object.Kind == "ConfigMap")
}

// undecipherable is why an object cannot be decrypted, or nil. One that is no Secret may stand in a file with one that is.
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
		return because("this is encrypted by SOPS, and what is decrypted of it would be shown in plans and drift", "a Secret")
	case file == nil:
		return because("this is encrypted by SOPS, and the file that SOPS encrypted is not at hand: the MAC in it is of the whole file",
			"the file itself among manifests, or among the resources of a kustomization")
	}
	if err := file.Fits(c.fields); err != nil {
		return because(err.Error(), "the values of "+file.name)
	}
	return nil
}

// asItIs refuses substitutions in what is encrypted, since the MAC covers all of it.
func (c *objectCheck) asItIs() {
	for _, text := range c.object.Texts {
		c.Report(text.Path, strict.Fault{Code: "no-substitution", Message: "nothing is substituted in what SOPS encrypted, since its MAC covers all of it", Expected: `text without "${{"`})
	}
	c.object.Texts = nil
	c.fields[sops.Field] = c.sealed
}
