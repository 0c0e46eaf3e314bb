// The default calibration text, for models of unknown training data. Written for this purpose.
#include "kuiper/quant/quantize_model.h"

namespace kuiper {

const char kCalibrationText[] =
    R"(The river had been rising since Tuesday. By the time Maren reached the
bridge, the water was brown and fast, and it carried branches, a door, and half of a wooden fence. She
stopped in the middle and looked down. "You should not stand there," said the old man behind her. "I
know," she answered, "but from here one sees where it comes from."

A heat pump moves heat from a cold place to a warm one. It needs work to do so, because heat never flows
that way by itself: the second law of thermodynamics forbids it. The ratio of the heat delivered to the
work spent is called the coefficient of performance; for an ideal machine between 273 K and 313 K it is
313 / (313 - 273) = 7.8, and good machines reach about half of that.

User: I have 24 apples and give a third of them to my neighbours. Then I buy five more. How many do I have?
Assistant: A third of 24 is 8, so 24 - 8 = 16 apples stay with you. After buying five more you have 21.
User: And if each costs 0.35 euros, what are they worth?
Assistant: 21 * 0.35 = 7.35, so they are worth 7.35 euros.

def moving_average(values, width):
    """Means of `width` neighbours; shorter than `values` by width - 1."""
    if width < 1 or width > len(values):
        raise ValueError(f"width {width} does not fit {len(values)} values")
    total = sum(values[:width])
    means = [total / width]
    for old, new in zip(values, values[width:]):
        total += new - old
        means.append(total / width)
    return means

fn main() {
    for i in 1..=15 {
        match (i % 3, i % 5) {
            (0, 0) => println!("FizzBuzz"),
            (_, 0) => println!("Buzz"),
            (0, _) => println!("Fizz"),
            _ => println!("{i}"),
        }
    }
}

{"name": "sensor-7", "interval_s": 30, "enabled": true, "limits": [0.5, 12.75, -3e-4], "note": null}

SELECT city, COUNT(*) AS visits FROM trips WHERE year >= 2019 GROUP BY city ORDER BY visits DESC LIMIT 10;

长江是中国最长的河流，全长约六千三百公里，流经十一个省、自治区和直辖市，最后在上海注入东海。
问：水在多少度结冰？答：在一个标准大气压下，纯水在摄氏零度结冰，在一百度沸腾。
春天来了，院子里的杏花开了。奶奶坐在门口剥豆子，猫在她脚边睡觉。

Der Zug nach Leipzig hatte zwanzig Minuten Verspätung, und niemand wusste, warum. Auf dem Bahnsteig roch es
nach Kaffee und nassem Laub. La bibliothèque ferme à dix-neuf heures; les livres empruntés doivent être
rendus avant la fin du mois. El mercado abre los sábados desde las ocho hasta las dos de la tarde.

| planet | radius (km) | moons |
|--------|-------------|-------|
| Mars   | 3389.5      | 2     |
| Saturn | 58232       | 146   |

To prove that the square root of 2 is irrational, suppose that it equals p/q in lowest terms. Then p^2 = 2 q^2,
so p is even, say p = 2r. Then 4 r^2 = 2 q^2, hence q^2 = 2 r^2, and q is even as well. But p/q was in lowest
terms, which is a contradiction.

Dear Dr. Okafor, thank you for the quick reply. We can deliver the two samples on 14 March; the invoice
(no. 2024-0318, 1,250.00 USD) follows by post. Please let us know whether the laboratory needs the data sheet
in English or in French. Kind regards, Ines Duarte
)";

}  // namespace kuiper
