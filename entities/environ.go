package entities

import (
	"slices"
	"strings"
)

// controlVariables lists environment variables that control which programs loaders, shells, interpreters and git run, where they find them,
// or how they read them. A name with a final * matches all names with that prefix. The list is sudo's env_delete, and newer variables.
var controlVariables = []string{
	"PATH", "HOME", "SHELL", "IFS", "CDPATH", "ENV", "BASH_ENV", "BASH_FUNC_*", "BASHOPTS", "SHELLOPTS", "GLOBIGNORE", "PS4", "PROMPT_COMMAND",
	"FPATH", "NULLCMD", "READNULLCMD", "ZDOTDIR", "TMPPREFIX",
	"LD_*", "DYLD_*", "_RLD*", "LDR_*", "LIBPATH", "SHLIB_PATH", "GLIBC_TUNABLES", "GCONV_PATH", "GETCONF_DIR", "MALLOC_*", "NLSPATH", "PATH_LOCALE",
	"LOCALDOMAIN", "RES_OPTIONS", "HOSTALIASES", "RESOLV_*",
	"TERMINFO", "TERMINFO_DIRS", "TERMPATH", "TERMCAP", "EDITOR", "VISUAL", "PAGER", "LESSOPEN", "LESSCLOSE",
	"PYTHON*", "PERL5*", "PERLLIB", "PERLIO_DEBUG", "RUBYLIB", "RUBYOPT", "NODE_OPTIONS", "NODE_PATH", "PHPRC", "PHP_INI_SCAN_DIR", "LUA_*",
	"JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "CLASSPATH", "CORECLR_*", "DOTNET_STARTUP_HOOKS",
	"GIT_*", "SSH_ASKPASS", "SUDO_*", "KRB5_CONFIG", "KRB5_KTNAME", "OPENSSL_CONF", "OPENSSL_MODULES", "XDG_CONFIG_HOME",
}

// ControlsPrograms reports whether an environment variable controls which programs loaders, shells and the like run. The owner of a command
// may set it. Users who only supply values may not.
func ControlsPrograms(name string) bool {
	return slices.ContainsFunc(controlVariables, func(pattern string) bool { return MatchesName(pattern, name) })
}

// MatchesName reports whether a name matches a pattern: the same name, or, if the pattern ends with *, any name with that prefix.
func MatchesName(pattern, name string) bool {
	prefix, any := strings.CutSuffix(pattern, "*")
	return name == pattern || any && strings.HasPrefix(name, prefix)
}
