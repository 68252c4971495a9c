/* SCR_Configf: a formatted SCR_Config. The exported symbol, which jumps here, is in format.rs. */

#include <stdarg.h>
#include <stdio.h>

const char *SCR_Config(const char *config);

/* Longer settings are refused; the longest useful ones contain a path. */
enum { LONGEST = 8192 };

const char *holdfast_scr_configf(const char *format, ...)
{
    char config[LONGEST];
    va_list arguments;
    int length;

    if (format == NULL) {
        return SCR_Config(NULL);
    }
    va_start(arguments, format);
    length = vsnprintf(config, sizeof config, format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length >= sizeof config) {
        fprintf(stderr, "SCR: SCR_Configf: the setting is longer than %d bytes, or could not be formatted\n",
                LONGEST - 1);
        return NULL;
    }
    return SCR_Config(config);
}
